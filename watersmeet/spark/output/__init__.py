"""Where results go.

A sink writes a batch's results (`sinks.py`, `tables.py`), or stages files for a folder (`files.py`) and
returns a delivery that the manifest names; after the commit, `outputs.py` has the files moved, so they appear exactly
once. Beside them: the `_id` of results (`identity.py`), and columns that the files of a table have lost
(`lost_columns.py`).
"""
