"""What two descriptions of a query differ in, as people can take it in: of long texts and lists only what differs."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from watersmeet.errors import SqlError
from watersmeet.predicate.source import Source
from watersmeet.predicate.type_names import spark_column

SHORT = 60
"""Texts of up to so many characters are shown as they are."""
AROUND = 3
"""How many words are shown on either side of what differs in a longer one."""
READ = "where, as Spark reads it"


def differences(theirs: Mapping[str, Any], mine: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Yield what changed, a part each; of a join within the join, what changed there.

    Args:
        theirs: How the query was described.
        mine: How it is described now.
        where: What precedes each part: the joins that it is within.
    """
    changed = [key for key in {**theirs, **mine} if theirs.get(key) != mine.get(key)]
    for key in changed:
        old, new = theirs.get(key), mine.get(key)
        names = _named(key, old), _named(key, new)
        old, new = names if names[0] != names[1] else (old, new)  # Arrow has several types for one of Spark's
        if key == READ and "where" in changed:  # the same, told twice
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping) and key.startswith("join "):
            yield from differences(old, new, f"{where}{key}: ")
        else:
            yield f"{where}{key} {_difference(key, old, new)}"


def _difference(key: str, old: Any, new: Any) -> str:
    shown = _shown(old), _shown(new)
    if max(map(len, shown)) <= SHORT:
        return f"was {shown[0]} and is now {shown[1]}"
    if isinstance(old, str) and isinstance(new, str):
        parts = (_conjuncts(old), _conjuncts(new)) if key == "where" else ([old], [new])
        return _of_lists(*parts) or f"was {_middle(old, new)} and is now {_middle(new, old)}"
    if isinstance(old, Sequence) and isinstance(new, Sequence):
        return _of_lists(old, new) or f"has the same in another order: {shown[1]}"
    return f"was {shown[0]} and is now {shown[1]}"


def _named(key: str, part: Any) -> Any:
    """Return a part with the types of its columns as people know them; the description has Arrow's names."""
    typed = key.startswith(("columns of ", "computed of ")) and isinstance(part, Sequence)
    return [spark_column(column) for column in part] if typed else part


def _of_lists(old: Sequence[Any], new: Sequence[Any]) -> str:
    """Return what two lists don't share; nothing if that is all of them, or none."""
    gone, come = [part for part in old if part not in new], [part for part in new if part not in old]
    if len(gone) == len(old) == len(come) == len(new) == 1:
        return ""
    if len(gone) == len(come) == 1 and isinstance(gone[0], str) and isinstance(come[0], str):
        return f"had {_middle(gone[0], come[0])} where it now has {_middle(come[0], gone[0])}"
    told = [f"{what} {', '.join(map(_shown, parts))}" for what, parts in (("lacks", gone), ("adds", come)) if parts]
    return f"now {' and '.join(told)}" if told else ""


def _conjuncts(text: str) -> list[str]:
    """Return the conditions that a text is made of; the text itself if it can't be read."""
    try:
        source = Source(text)
    except SqlError:
        return [text]
    return [text[start:end] for start, end in source.clauses()] if source.tokens else []


def _middle(text: str, other: str) -> str:
    """Return what a text does not share with another at either end, with a few words around it."""
    if len(text) <= SHORT:
        return _shown(text)
    words, others = text.split(" "), other.split(" ")
    first = _alike(words, others)
    last = len(words) - _alike(words[first:][::-1], others[first:][::-1])
    start, end = max(0, first - AROUND), min(len(words), last + AROUND)
    return _shown(f"{'... ' if start else ''}{' '.join(words[start:end])}{' ...' if end < len(words) else ''}")


def _alike(words: Sequence[str], others: Sequence[str]) -> int:
    """Return with how many words two lists begin alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, others, strict=False)))


def _shown(part: Any) -> str:
    return "missing" if part is None else repr(part)
