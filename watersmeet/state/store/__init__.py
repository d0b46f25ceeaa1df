"""The store: a folder of immutable files, local or remote, and what a process keeps open of it.

`store.py` reads and writes them, through `local_files.py` or `remote.py`; `file_format.py` and `shape.py` check what
was read. `budget.py` keeps chunks mapped, within limits; `chunk_writer.py` writes chunks, and which of their rows are
dead.

Invariant: a file that is missing or fails its checksum is an error, never "no rows".
"""
