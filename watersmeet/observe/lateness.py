"""Late rows: the delay that would have kept them, and a warning if there are many; pure, so that it can be tested."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from watersmeet.arguments import LONGEST, format_duration, round_up
from watersmeet.batch.report import StreamIntake
from watersmeet.observe.warnings import Notice
from watersmeet.state.manifest.manifest import StreamState

LATE_SHARE = 0.05
"""The share of a stream's rows above which late rows are many."""
RECENT = 10
"""The batches over which that is measured."""
KEPT_SHARE = 0.99
"""The share of late rows that an advised delay keeps: a single row of 1970 would need decades."""
Progress = Mapping[str, Any]


def quantile(weighted: Iterable[tuple[float, int]], share: float) -> float | None:
    """Return the least value up to which values have a share of all weights; None if all weights are 0.

    >>> quantile([(3.0, 90), (1.0, 10)], 0.05), quantile([(3.0, 90), (1.0, 10)], 0.5), quantile([], 0.5)
    (1.0, 3.0, None)
    """
    ordered, weight_so_far = sorted((value, weight) for value, weight in weighted if weight), 0
    total = sum(weight for _, weight in ordered)
    for value, weight in ordered:
        weight_so_far += weight
        if weight_so_far >= share * total:
            return value
    return None


def lost_by_delay(latest: int, times: NDArray[np.int64]) -> Counter[int]:
    """Return how many rows each delay would have kept that shorter ones would not.

    Delays are in microseconds, rounded up to two digits, at most `LONGEST`.

    [!] Rounding bounds their number: with broken clocks, every row would need a delay of its own.

    Args:
        latest: The latest event time of the stream before, in microseconds.
        times: The event times of its late rows.

    >>> lost_by_delay(100_000_000, np.array([65_800_000, 65_200_000, 99_000_000]))
    Counter({35000000: 2, 1000000: 1})
    """
    behind = np.maximum(latest - times.astype(np.float64), 1)  # [!] whole numbers might overflow
    digit = np.maximum(10 ** np.floor(np.log10(behind) - 1), 1)
    lengths, counts = np.unique(np.minimum(np.ceil(behind / digit) * digit, LONGEST), return_counts=True)
    return Counter(dict(zip(map(int, lengths), counts.tolist(), strict=True)))


def needed_delay(state: StreamState, mark: int | None, watermark: int | None, intake: StreamIntake) -> dict[str, float]:
    """Return the delay, in milliseconds, that would have kept a batch's late rows: all (`max`), or 99 % (`p99`).

    Empty if there are none, or if the stream was idle when the watermark passed them: no delay would have kept them.

    Args:
        state: The stream's state before the batch.
        mark: Its watermark then, in microseconds; None if it had none.
        watermark: The join's watermark then; None if it had none.
        intake: What the batch brought of it.
    """
    passed_by = state.idle or mark is None or watermark is None or watermark > mark
    if not intake.delays or passed_by:
        return {}
    delay = quantile(intake.delays.items(), KEPT_SHARE) or 0.0
    return {"p99": delay / 1000, "max": max(intake.delays) / 1000}


def warn_late_rows(batches: Sequence[Progress], share: float = LATE_SHARE, recent: int = RECENT) -> list[Notice]:
    """Return a warning for each stream with many late rows, inner joins included; rounds don't count as batches.

    Args:
        batches: The progress of batches, oldest first, as manifests hold it.
        share: The share of a stream's rows that may be late.
        recent: The number of last batches to measure over.
    """
    recent_batches = [batch for batch in batches if not batch.get("round")][-recent:]
    return _warn_streams(recent_batches, share, "")


def _warn_streams(batches: Sequence[Progress], share: float, within: str) -> list[Notice]:
    """Return a notice for each stream with too large a share of late rows, those of inner joins included.

    `within` is the path of the join in the tree, such as `ab/`; empty for the outermost.
    """
    if not batches:
        return []
    notices = []
    for name in batches[-1].get("streams", {}):
        parts = [batch["streams"][name] for batch in batches if name in batch.get("streams", {})]
        rows, late = (sum(part[kind] for part in parts) for kind in ("rows", "late"))
        if late > share * rows:
            notices.append(Notice(f"late {within}{name}", _describe_lateness(name, within, rows, late, parts)))
    for name in batches[-1].get("inner", {}):
        inner = [batch["inner"][name] for batch in batches if name in batch.get("inner", {})]
        notices += _warn_streams(inner, share, f"{within}{name}/")
    return notices


def _describe_lateness(name: str, within: str, rows: int, late: int, parts: Sequence[Progress]) -> str:
    """Return the sentence on a stream's late rows, with the delay that would have kept them."""
    stream = f"Stream '{name}'{f' of join {within[:-1]!r}' if within else ''}"
    when = "last batch" if len(parts) == 1 else f"last {len(parts)} batches"
    return (
        f"{stream}: {late / rows:.0%} of its rows of the {when} came too late and were not joined "
        f"({late:,} of {rows:,}); {_advise_delay(parts)}."
    )


def _advise_delay(parts: Sequence[Progress]) -> str:
    """Return the clause that says which delay would have kept nearly all late rows, or why none would."""
    needs = [(part["neededDelayMs"], part["late"]) for part in parts if part.get("neededDelayMs")]
    delay = quantile(((delays["p99"], late) for delays, late in needs), KEPT_SHARE)
    if delay is None and any(part["late"] and "neededDelayMs" not in part for part in parts):
        return "a longer delay would have kept them"  # an earlier version did not record which
    if delay is None:
        return "it had been idle, and the watermark moved on without it: a longer idle='...' would have kept them"
    what = "them" if delay >= max(delays["max"] for delays, _ in needs) else "nearly all of them"
    return f"delay='{format_duration(round_up(round(1000 * delay)))}' would have kept {what}"
