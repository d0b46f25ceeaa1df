"""The live view of a query, from its checkpoint alone.

`checkpoint_reader.py` reads a `CheckpointSnapshot`; `build.py` turns it into a `DashboardView` (`dashboard_view.py`),
with the help of `joins.py` (what each join does and keeps). `terminal.py`, `notebook.py` and
`page.html` draw the view and compute nothing: what they show is text already. All of it is pure but the reader.
"""
