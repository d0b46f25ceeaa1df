"""State: immutable chunks, the manifest that names the live ones, and the store that holds both.

`chunks/`: rows and how they are looked up; `manifest/`: what the state is; `store/`: files.

Invariants: apart from the renewal of a lease, a file never changes once it has been published, and its name is never
used again; state is what the manifest names, and is never found by listing a folder.
"""
