"""Metadata: the constraints of streams on rows still to come, and what may leave the state because of them.

Floors, from the lowest: records (`constraints.py`, `declarations.py`, `constraint_state.py`, `marks.py`), which queries
and manifests hold; rules (`denial.py`, `closing.py`, `dead_rule.py`, `expiry.py`), which decide what is denied, closed,
dead and expired; and what collects and applies metadata in a batch (`collector.py`, `marking.py`).

Invariant: a row is denied or not by the state after the previous batch, so results never depend on when a tuple was
purged.
"""
