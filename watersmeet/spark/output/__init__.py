"""Where results go.

A sink writes a batch's results (`sinks`, `delta`, `tables`), or stages files in a folder (`files`) and returns a
delivery that the manifest names; after the commit, `outputs` has the files moved (`moving`), so they appear exactly
once. Beside them: the `_id` of results (`identity`), and columns that the files of a table have lost (`lost_columns`).
"""
