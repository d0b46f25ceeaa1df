"""The inner loops: hops, the search for candidates, and the filters that candidates must pass."""
