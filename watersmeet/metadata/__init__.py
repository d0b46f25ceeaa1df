"""Metadata: what is known about rows still to come, and which state may be purged because of it.

The import contract in `pyproject.toml` divides the modules into floors. Records come first: constraints as declared,
as resolved and as text, their state, marks, frontiers and the metadata part of a batch's plan. Queries, manifests and
plans hold these, so they import neither `watersmeet.query` nor `watersmeet.state`. Rules use both, but no batch: which
rows are denied, when a stream is closed for a partial result, which tuples are dead, superseded or expired, and which
punctuations are emitted. On top are the tasks of a batch, `collector` and `constraint_updater`, and a view for people,
`outlook`.

What does not fit: `collector` and `constraint_updater` import the plan and side outputs of `watersmeet.batch`, whose
`intake` and `finish` import them. Packages meet in both directions there, modules never in a cycle.

Invariants: a row is denied by the state after the batch before, so that results never depend on when state was purged.
Denial only grows, except that marks are dropped at the end of their lifetime. This module imports nothing, because
importing one floor would otherwise import all.
"""
