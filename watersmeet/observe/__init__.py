"""What a join did and why, for people. Nothing here changes what a join does, and `__init__.py` imports nothing.

Floors, from the lowest; import contracts in `pyproject.toml` keep them apart:

- Used while a batch runs and commits, below whatever runs it: `near_misses.py` (tasks), `funnel.py`, `warnings.py`,
  `lateness.py` and `progress.py` (the commit). Each field that they put into `progress` is
  described in `docs/progress_fields.py`.
- Used by the protocol, below it, but above the tree of joins and `adapt`: `timing.py`.
- Views, which only read what was recorded, and which nothing that runs a batch imports: `explain.py` (how a join runs),
  `why/` (why tuples did or did not join), `dashboard/` (the live view) and, on top of it, `serving.py` (its terminal
  and web page, the only module with threads and a clock).
"""
