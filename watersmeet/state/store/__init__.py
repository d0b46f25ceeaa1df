"""The store: a folder of immutable files, local or remote, and what a process keeps open of it."""
