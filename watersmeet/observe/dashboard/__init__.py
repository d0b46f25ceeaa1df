"""The live view of a query, from its checkpoint alone.

`checkpoint_reader.py` reads a `CheckpointSnapshot`; `build.py` turns it into a `DashboardView` (`dashboard_view.py`),
with the help of `verdict.py` (is the query healthy?), `joins.py` and `state_map.py` (what each join does and keeps) and
`recent_batches.py` (trends and rates); `formats.py` formats numbers and times. `terminal.py`, `notebook.py` and
`page.html` draw the view and compute nothing: what they show is text already. All of it is pure but the reader.
"""
