"""Spilling: under load, part of the work is postponed and done later; no result is lost, and none comes twice.

Floors, from the lowest; an import contract in `pyproject.toml` keeps them apart, so `__init__` imports nothing:

- Records, below the query and the state, which hold them: `units.py` (what is spilled, the ledger of what is owed, the
  settle rule), `options.py` (`wm.Spill`). `plan.py`, a batch's plan and report, counts a probe's work.
- Rules, which tasks follow: `paying_tuples.py` and `tallies.py`. They read `batch/plan.py` and `batch/report.py`, which
  hold the records, so they can't lie below all of `batch`, but they lie below whatever runs a batch.
- Decisions, above the batch: `parts.py`, `policies/`, `decisions.py`, `interface.py` and `controller.py`.

Invariants: each chunk has one unit or is hot, and labels change only between batches. Each result is emitted once: when
the last of its members' units is settled for its probing tuple. A step is decided when the one before is committed, and
pays whole batches, never until time is up, so that a batch that runs again does the same. Spilling only delays results:
which of them come, and which rows are late, is the same without it. State is purged by `settled`, not by the watermark.
"""
