"""Spilling: under load, part of the work is postponed and done later; no result is lost, and none comes twice.

Floors, from the lowest: records (`units.py`, `traces.py`), which manifests hold; rules (`owed.py`, `owed_tuples.py`,
`tallies.py`), which a batch follows; and controllers (`controller.py`, `paying.py`, `policies/`), which decide after
each batch what the next one spills and pays.
"""
