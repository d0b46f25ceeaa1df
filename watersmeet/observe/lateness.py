"""Late rows: the delay that would have kept them, and a warning where they are many; pure, so that it can be tested."""

from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.arguments import format_duration, round_up
from watersmeet.batch.intake import StreamIntake
from watersmeet.observe.delays import quantile
from watersmeet.observe.warnings import Notice
from watersmeet.state.manifest.manifest import StreamState

LATE_SHARE = 0.05
"""The share of a stream's rows that may be late; more are many."""
RECENT = 10
"""Batches that are looked at for it."""
MOST = 0.99
"""The share of late rows that a delay must keep to be advised: a row of 1970 asks for one of decades."""
Progress = Mapping[str, Any]


def needed_delay(old: StreamState, mark: int | None, watermark: int | None, seen: StreamIntake) -> dict[str, float]:
    """Return the delay, in milliseconds, that would have kept a batch's late rows: all (`max`), or 99 % (`p99`).

    Empty if there are none, or if the stream was idle when the watermark passed them: no delay would have kept them.

    Args:
        old: The stream's state before the batch.
        mark: Its watermark then.
        watermark: The join's.
        seen: What the batch brought of it.
    """
    passed_by = old.idle or mark is None or watermark is None or watermark > mark
    if not seen.delays or passed_by:
        return {}
    most = quantile(seen.delays.items(), MOST) or 0.0
    return {"p99": most / 1000, "max": max(seen.delays) / 1000}


def late_rows(batches: Sequence[Progress], share: float = LATE_SHARE, recent: int = RECENT) -> list[Notice]:
    """Return a warning for each stream that many rows were late of, inner joins included.

    Args:
        batches: What batches did, oldest first, as manifests hold it.
        share: The share of a stream's rows that may be late.
        recent: How many of the last batches to look at.
    """
    last = [batch for batch in batches if not batch.get("round")][-recent:]
    return _late_rows(last, share, "")


def _late_rows(batches: Sequence[Progress], share: float, within: str) -> list[Notice]:
    if not batches:
        return []
    notices = []
    for name in batches[-1].get("streams", {}):
        parts = [batch["streams"][name] for batch in batches if name in batch.get("streams", {})]
        rows, late = (sum(part[kind] for part in parts) for kind in ("rows", "late"))
        if late > share * rows:
            notices.append(Notice(f"late {within}{name}", _sentence(name, within, rows, late, parts)))
    for name in batches[-1].get("inner", {}):
        inner = [batch["inner"][name] for batch in batches if name in batch.get("inner", {})]
        notices += _late_rows(inner, share, f"{within}{name}/")
    return notices


def _sentence(name: str, within: str, rows: int, late: int, parts: Sequence[Progress]) -> str:
    stream = f"Stream '{name}'{f' of join {within[:-1]!r}' if within else ''}"
    when = "last batch" if len(parts) == 1 else f"last {len(parts)} batches"
    return (
        f"{stream}: {late / rows:.0%} of its rows of the {when} came too late and were not joined "
        f"({late:,} of {rows:,}); {_advice(parts)}."
    )


def _advice(parts: Sequence[Progress]) -> str:
    known = [(part["neededDelayMs"], part["late"]) for part in parts if part.get("neededDelayMs")]
    most = quantile(((needed["p99"], late) for needed, late in known), MOST)
    if most is None and any(part["late"] and "neededDelayMs" not in part for part in parts):
        return "a longer delay would have kept them"  # an earlier version did not record which
    if most is None:
        return "it had been idle, and the watermark moved on without it: a longer idle='...' would have kept them"
    kept = "them" if most >= max(needed["max"] for needed, _ in known) else "nearly all of them"
    return f"delay='{format_duration(round_up(round(1000 * most)))}' would have kept {kept}"
