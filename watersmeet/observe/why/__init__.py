"""Why two tuples did or did not join: `ask.py` finds the tuples, `judged.py` tests their combinations."""
