"""One hop: partial results of a block probe the chunks of one more stream and come out longer.

`hop.py` makes a hop: `search.py` proposes candidates by the access path with the fewest pairs, and `filters.py` tests
them: windows and arrival order first (`emitted_once.py`), then conjuncts, which `evaluators/` evaluate.

Invariants: an access path proposes a superset, and every conjunct is still tested; of a result's members only the one
that arrived last finds it.
"""
