"""The manifest of a batch and the other documents of a store: its users, the intents of rounds, recorded progress."""
