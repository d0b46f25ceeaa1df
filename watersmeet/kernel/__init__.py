"""The inner loops: windows, candidates, residual predicates, hops."""
