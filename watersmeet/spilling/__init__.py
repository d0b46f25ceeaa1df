"""Spilling: under load, part of the work is postponed and done later; no result is lost, and none comes twice.

Floors, from the lowest: records (`units.py`), which manifests hold; rules (`owed.py`, `owed_tuples.py`, `tallies.py`),
which a batch follows; and what decides after each batch which units the next one spills and pays (`controller.py`,
`decisions.py`, `policies/`).

Invariant: whatever is spilled and paid, and when, results are the same in the end.
"""
