"""What a join is: streams, windows, optional streams, conditions, output. Immutable, and free of Spark and of state.

`query.py` holds the join itself; `statement.py` and `sql_joins.py` read it from SQL text; `optional_streams.py` and
`as_of.py` check what `how=` asks for.
"""
