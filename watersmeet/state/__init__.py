"""State: immutable chunks, the manifest that names the live ones, and the store that holds both."""
