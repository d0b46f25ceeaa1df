"""From the text of `where` to conjuncts that DuckDB, NumPy or Spark can decide.

`parse.py` runs the passes over each conjunct; `translate.py` and its tables (`values.py`, `conditions.py`,
`functions.py`) produce DuckDB's SQL; `bounds.py` and `great_circles.py` find access paths; `model.py` holds the
outcome. User text reaches DuckDB only as quoted literals, and no user name does.
"""
