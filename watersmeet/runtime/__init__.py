"""How batches are run, whoever runs them: the protocol as a state machine, and the joins of a query as a tree."""
