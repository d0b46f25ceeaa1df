"""How batches run, whatever runs them.

`commit_protocol.py` is the batch protocol as a pure state machine: events in, actions out. `enact.py` performs those
actions that need only the store, and Spark, `wm.advise` and the tests the others. `tree.py` plans and commits nested
joins together.

Invariant: a batch may be cut between any two actions; the next start completes it or runs it again, and its
results appear once.
"""
