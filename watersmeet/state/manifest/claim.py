"""Claiming a store for a query: its description is written at the first start and compared at every later one."""

import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from watersmeet.errors import AFRESH, DefinitionError, SqlError, StateError
from watersmeet.predicate.source import Source
from watersmeet.predicate.types import spark_column
from watersmeet.state.manifest import documents
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.generations import Fence, last_fence
from watersmeet.state.store.file_format import seal, unseal
from watersmeet.state.store.store import Store

DESCRIPTION = "query.json"
SHORT = 60
"""Texts of up to this many characters are shown as they are."""
AROUND = 3
"""How many words are shown on either side of what differs in a longer one."""
AS_SPARK_READS = "where, as Spark reads it"


def claim(
    store: Store,
    description: Mapping[str, Any],
    output: str | None = None,
    layout: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> str:
    """Claim a store for a query; return the store's name, which the first claim gives it.

    Writes the description of the query, or updates where the store and its output are. The caller must hold the
    store's lease. [!] A run that was suspended here, and wakes after another one has claimed the store, must not give
    it another name: files in the output have the first.

    Args:
        store: The store.
        description: What must not change between two runs.
        output: The folder that results go to, if any; it may change.
        layout: How results are laid out there; it may change along with the folder.
        check: Raises if another run has taken over.

    Raises:
        DefinitionError: If it belongs to another query, or results would be laid out in two ways; the message says what
            changed.
        StateError: If the description is damaged or missing.
    """
    text = store.read(DESCRIPTION)
    # [!] A run that has put up a fence may have delivered results under the store's name, at least once.
    if not text and manifests.newest(store) is None and last_fence(store) == Fence():
        where = {"at": store.root, "output": output, "layout": layout}
        text = _publish(store, {"name": uuid.uuid4().hex[:8], "query": description, **where}, check)
    if not text:
        raise StateError(
            f"There is state under {store.root}, but no {DESCRIPTION} to say which query it belongs to; restore it or "
            f"{AFRESH}."
        )
    document = unseal(text, f"The description of the query, {store.root}/{DESCRIPTION},", documents.ClaimDocument)
    _compare(store, document["query"], description)
    old_layout = document.get("layout", layout)
    if output is not None and document["output"] == output and old_layout != layout:
        raise DefinitionError(
            f"The results in {output} are {old_layout}, and would now be {layout}: readers can't handle both in one "
            "folder. Write to another path, or keep the layout."
        )
    if (document["at"], document["output"], old_layout) != (store.root, output, layout):
        origins = {*document.get("origins", ()), document["at"]} - {store.root}
        _check_copy(store, str(document["name"]), origins, output)
        update = {"at": store.root, "output": output, "layout": layout, "origins": sorted(origins)}
        check()
        store.overwrite(DESCRIPTION, seal(document | update))
        store.sync([DESCRIPTION])
        check()
    return str(document["name"])


def read_description(store: Store) -> Mapping[str, Any]:
    """Return the description of the query that a store belongs to; empty if it is not claimed yet.

    Raises:
        StateError: If it is damaged.
    """
    text = store.read(DESCRIPTION)
    if not text:
        return {}
    document = unseal(text, f"The description of the query, {store.root}/{DESCRIPTION},", documents.ClaimDocument)
    description: Mapping[str, Any] = document["query"]
    return description


def _publish(store: Store, document: Mapping[str, Any], check: Callable[[], None]) -> bytes | None:
    """Write the first description, unless there is one; return what is there then."""
    if store.read(DESCRIPTION) == b"":  # an interrupted start, or a loss of power, has left nothing but the name
        check()
        store.remove([DESCRIPTION])
    store.publish(DESCRIPTION, seal(document))
    check()
    return store.read(DESCRIPTION)


def _check_copy(store: Store, name: str, origins: Collection[str], output: str | None) -> None:
    """Refuse a copy that writes where an original does: each would take the other's results for its own.

    A store whose original is gone was moved, and is accepted.

    Args:
        store: The store.
        name: Its name, which it shares with its originals.
        origins: Where it has been before.
        output: The folder that it is to write to, if any.

    Raises:
        DefinitionError: If it is such a copy.
    """
    for origin in sorted(origins) if output is not None else ():
        if is_same_folder(store.root, origin):
            continue
        try:
            original = unseal(Store(origin).read(DESCRIPTION) or b"", "", documents.ClaimDocument)
        except (OSError, StateError, DefinitionError):
            continue
        if (original["name"], original["output"]) == (name, output):
            raise DefinitionError(
                f"The checkpoint at {store.root} is a copy of the one at {origin}, which is still there, and both "
                f"write to {output}: results would be lost or duplicated. Write to another path, or remove the "
                "original."
            )


def is_same_folder(one: str, other: str) -> bool:
    """Tell whether two paths lead to one folder of this host, by a link or by a mount."""
    try:
        return one == other or os.path.samefile(one, other)
    except OSError:
        return False


def _compare(store: Store, stored: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Compare the stored description of a query with the current one.

    Raises:
        DefinitionError: If they differ.
    """
    changes = "; ".join(differences(stored, current))
    if changes:
        raise DefinitionError(
            f"The checkpoint at {store.root} belongs to another query: {changes}. "
            f"Use the old query or {AFRESH}; nodes, strategy, order and trigger may change."
        )


# -- differences


def differences(stored: Mapping[str, Any], current: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Yield what changed between two descriptions of a query, one part at a time; of long texts only what differs.

    Args:
        stored: The description in the store.
        current: The description of the query as it is now.
        where: A prefix for each part: the joins that it lies within.
    """
    changed = [key for key in {**stored, **current} if stored.get(key) != current.get(key)]
    for key in changed:
        old, new = stored.get(key), current.get(key)
        names = _name_types(key, old), _name_types(key, new)
        old, new = names if names[0] != names[1] else (old, new)  # Arrow has several types for one of Spark's
        if key == AS_SPARK_READS and "where" in changed:  # one change, not two
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping) and key.startswith("join "):
            yield from differences(old, new, f"{where}{key}: ")
        else:
            yield f"{where}{key} {_difference(key, old, new)}"


def _difference(key: str, old: Any, new: Any) -> str:
    """Return how two values of a description differ, in words; long ones are reduced to what differs."""
    texts = _format_value(old), _format_value(new)
    if max(map(len, texts)) <= SHORT:
        return f"was {texts[0]} and is now {texts[1]}"
    if isinstance(old, str) and isinstance(new, str):
        parts = (_conjuncts(old), _conjuncts(new)) if key == "where" else ([old], [new])
        return _list_difference(*parts) or f"was {_middle(old, new)} and is now {_middle(new, old)}"
    if isinstance(old, Sequence) and isinstance(new, Sequence):
        return _list_difference(old, new) or f"has the same in another order: {texts[1]}"
    return f"was {texts[0]} and is now {texts[1]}"


def _name_types(key: str, part: Any) -> Any:
    """Return a part with Spark's names for the types of its columns; the description has Arrow's."""
    is_typed = key.startswith(("columns of ", "computed of ")) and isinstance(part, Sequence)
    return [spark_column(column) for column in part] if is_typed else part


def _list_difference(old: Sequence[Any], new: Sequence[Any]) -> str:
    """Return what two lists don't share; empty if that is everything, or nothing."""
    removed, added = [part for part in old if part not in new], [part for part in new if part not in old]
    if len(removed) == len(old) == len(added) == len(new) == 1:
        return ""
    if len(removed) == len(added) == 1 and isinstance(removed[0], str) and isinstance(added[0], str):
        return f"had {_middle(removed[0], added[0])} where it now has {_middle(added[0], removed[0])}"
    verbs = (("lacks", removed), ("adds", added))
    changes = [f"{verb} {', '.join(map(_format_value, parts))}" for verb, parts in verbs if parts]
    return f"now {' and '.join(changes)}" if changes else ""


def _conjuncts(text: str) -> list[str]:
    """Return the conjuncts of a `where`; the whole text if it can't be parsed."""
    try:
        source = Source(text)
    except SqlError:
        return [text]
    return [text[start:end] for start, end in source.clauses()] if source.tokens else []


def _middle(text: str, other: str) -> str:
    """Return the part of a text that differs from another, with a few words of context on either side."""
    if len(text) <= SHORT:
        return _format_value(text)
    words, others = text.split(" "), other.split(" ")
    first = _common_start(words, others)
    last = len(words) - _common_start(words[first:][::-1], others[first:][::-1])
    start, end = max(0, first - AROUND), min(len(words), last + AROUND)
    return _format_value(f"{'... ' if start else ''}{' '.join(words[start:end])}{' ...' if end < len(words) else ''}")


def _common_start(words: Sequence[str], others: Sequence[str]) -> int:
    """Return the length of the longest common prefix of two lists."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, others, strict=False)))


def _format_value(part: Any) -> str:
    return "missing" if part is None else repr(part)
