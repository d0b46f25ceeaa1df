"""A plan of joins, drawn in text: which joins are streams of which, and what each of them did last."""

from collections.abc import Iterator

from watersmeet.runtime.tree import JoinTree
from watersmeet.state.manifest.manifest import Manifest


def drawn(tree: JoinTree, state: Manifest) -> list[str]:
    """Return a tree of joins as lines; none where there is but one join."""
    return list(_lines(tree, state, "", "", "results")) if tree.inner else []


def _lines(tree: JoinTree, state: Manifest, first: str, rest: str, name: str) -> Iterator[str]:
    """Yield the lines of a join.

    Args:
        tree: The join.
        state: Its state.
        first: What stands before its first line.
        rest: What stands before all others.
        name: What its results are called where they go.
    """
    yield f"{first}{name}: join{_did(state)}"
    query = tree.operator.query
    streams = query.streams
    for at, stream in enumerate(streams):
        last = at == len(streams) - 1
        branch, beside = ("└─ ", "   ") if last else ("├─ ", "│  ")
        window = query.kind_of(at) if stream.table else stream.window.describe()
        if at in tree.inner:
            child = tree.inner[at]
            own = state.inner.get(at) or child.start()
            yield from _lines(child, own, f"{rest}{branch}", f"{rest}{beside}", f"{stream.name} ({window})")
        else:
            rows = state.progress.get("inputRows", {}).get(stream.name)
            yield f"{rest}{branch}{stream.name} ({window}){'' if rows is None else f': {rows:,} rows'}"


def _did(state: Manifest) -> str:
    if not state.progress:
        return ""
    found = state.progress
    units = len(state.ledger.units)
    debts = f", {units:,} {'unit' if units == 1 else 'units'} put off" if units else ""
    return f", {found['outputRows']:,} results last, {found['stateRows']:,} rows of state{debts}"
