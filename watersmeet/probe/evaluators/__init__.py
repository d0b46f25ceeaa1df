"""Evaluating conjuncts for blocks of pairs: DuckDB (`duck.py`, `sql.py`), NumPy with error bounds (`balls.py`).

`guard.py` lets DuckDB run single expressions of known functions only. Invariant: a comparison that is too close to call
is left to Spark, never decided here.
"""
