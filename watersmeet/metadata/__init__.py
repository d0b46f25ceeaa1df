"""Metadata: what streams promise about rows still to come, and what may leave the state because of it.

Floors, from the lowest: records (`constraints.py`, `declarations.py`, `constraint_state.py`, `marks.py`), which queries
and manifests hold; rules (`denial.py`, `closing.py`, `dead_rule.py`, `expiry.py`), which decide what is denied, closed,
dead and expired; and what collects and applies metadata in a batch (`collector.py`, `marking.py`).

Invariant: denial judged at intake is that of the batch before, so results never depend on when something was purged.
"""
