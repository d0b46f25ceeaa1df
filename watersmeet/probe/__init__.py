"""One hop: partial results of a block probe the chunks of one more stream and come out longer.

`hop.py` runs a hop, `search.py` proposes candidates by the access path that leaves the fewest, `filters.py` tests them,
`emitted_once.py` admits only what arrived earlier; `evaluators/` decide conjuncts.

Invariant: an access path proposes a superset, and every conjunct is still tested.
"""
