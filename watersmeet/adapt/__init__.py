"""Cost models and what follows from them while a join runs."""
