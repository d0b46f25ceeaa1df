"""Experiments, each a program: `python bench/joins/band3.py`. `make bench` runs most of them.

- `joins/`: joins against what one does with Spark alone; placements, orders and predicates against each other.
- `metadata/`: joins without windows, whose streams say what can no longer come.
- `spilling/`: joins under a load that they can't keep up with.
- `system/`: what batches, decisions and state cost, how soon results come, and what grows in long runs.

`common` has what they share, `measurement` runs joins in processes of their own. Tables, CSV and PNG are written under
`bench/results/`. Programs put the root of the repository on the path, so that they run from anywhere; the folder of the
program is on the path too, so no module may have the name of a package that is imported.
"""
