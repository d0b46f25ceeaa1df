"""SQL on Spark: `where`, `select` and whole statements, parsed and analysed by Spark itself.

- `sql_statement.py`, `relations.py`, `statement_names.py`: a statement, as one join or joins within joins.
- `where.py` compiles conditions: `catalyst.py` walks and rebuilds Spark's trees, `condition_names.py` resolves names,
  `hoist.py` lets Spark compute single-stream expressions, `convert.py` hands the rest to the translator to DuckDB,
  `gaps.py` reads how far apart event times may be.
- `select.py` (texts) and `select_columns.py` (PySpark's columns, through `column_writer.py`): SELECT lists.
- `purity.py`, `value_limits.py`, `value_bounds.py`: what is refused or limited.

Errors of Spark's never reach the user as they are: `catalyst.error_sentence` makes a sentence of them.
"""
