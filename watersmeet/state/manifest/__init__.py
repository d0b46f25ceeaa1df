"""The manifest of a batch, and the other documents of a store.

`manifest.py`: which chunks are live and how far time has advanced; `documents.py`: the shape of every document.
`claim.py` and `leases.py`: which query and which run a store belongs to; `generations.py`: which run's files count;
`rounds.py`: intents of rounds; `delivery.py`: files on their way to output folders; `history.py`: recorded progress;
`view.py`: what strategies see of the state.
"""
