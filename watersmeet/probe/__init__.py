"""One hop: partial results of a block probe the chunks of one more stream and come out longer.

`hop.py` runs a hop: `search.py` proposes candidates by the access path with the fewest pairs, `filters.py` cuts them by
windows and arrival order (`emitted_once.py`) and tests conjuncts, which `evaluators/` evaluate.

Invariant: an access path proposes a superset, and every conjunct is still tested.
"""
