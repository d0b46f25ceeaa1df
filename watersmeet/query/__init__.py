"""What a join is: streams, windows, optional streams, conditions, output. Immutable, and free of Spark and of state.

`query.py` holds the join itself and `windows.py` its windows; `statement.py` parses it from text, with `sql_joins.py`
for joins and subqueries; `optional_streams.py` reads `how=` and `on=` and refuses what can't be decided;
`continuation.py` takes over delays and windows of a checkpoint.

Invariant: a window is one monotone function, its deadline; probing, routing and expiry all follow from it.
"""
