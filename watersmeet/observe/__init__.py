"""What a join did and why, for people. Nothing here changes what a join does, and `__init__.py` imports nothing.

Two floors. Below, used while a batch runs and commits: `delays.py` and `near_misses.py` (tasks), `funnel.py`,
`hints.py`, `warnings.py`, `lateness.py` and `progress.py` (the commit), `timing.py` (the protocol). Each field that
they put into `progress` is described in `progress_fields.py`.

Above, only reading what was recorded: `explain.py` (how a join runs), `why/` (why tuples did or did not join),
`dashboard/` (the live view) and `serving.py` (its terminal and web page, the only module with threads and a clock).
"""
