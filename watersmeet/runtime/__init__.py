"""How batches are run and committed: the protocol as a pure state machine (`commit_protocol.py`), the base class of
runtimes, which perform its actions (`enact.py`), and a query's joins as a tree (`tree.py`).
"""
