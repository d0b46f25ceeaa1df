"""What a join did and why, for people: progress and its parts, warnings, explanations, `why/` and `dashboard/`.

`progress.py`, `funnel.py`, `hints.py` and `warnings.py` are made when a batch is committed; everything else only reads
what was recorded. Nothing here changes what a join does.
"""
