"""The verdict: is the join healthy, does it keep up, and if not, why?"""

from collections.abc import Callable, Iterator

from watersmeet.observe.dashboard.checkpoint_reader import CheckpointSnapshot
from watersmeet.observe.dashboard.dashboard_view import Level, Verdict
from watersmeet.observe.dashboard.formats import (
    format_count,
    format_milliseconds,
    format_percent,
    short_duration,
    short_seconds,
)
from watersmeet.observe.dashboard.recent_batches import RECENT, RecentBatches, end_time
from watersmeet.observe.lateness import LATE_SHARE, warn_late_rows
from watersmeet.state.manifest.leases import EXPIRES

SILENT = 60_000_000
"""Microseconds without a batch that are worth a look, unless ten triggers take longer."""
TRIGGERS = 10
REFUSED_SHARE = 0.05
"""The share of rejected or denied rows above which it is worth a look."""
Reason = tuple[Level, str]
"""A sentence, and how serious it is."""


def verdict(snapshot: CheckpointSnapshot, batches: RecentBatches, now: int) -> Verdict:
    """Return the health of a query.

    Args:
        snapshot: Its checkpoint.
        batches: Its last batches.
        now: The time, in microseconds since the epoch.
    """
    if snapshot.problem:
        return Verdict("bad", "Can't be read", (snapshot.problem,))
    rules = RULES if batches.progress else (_check_process,)
    reasons = [reason for rule in rules for reason in rule(snapshot, batches, now)]
    for level in ("bad", "watch"):
        messages = [message for severity, message in reasons if severity == level]
        if messages and not snapshot.runner.has_ended:
            rest = [message for severity, message in reasons if severity not in (level, "good")]
            title = NOT_RUNNING if snapshot.runner.is_running is False else TITLES[level]
            return Verdict(level, title, tuple(dict.fromkeys([*messages, *rest])))
    if not batches.progress:
        return Verdict("off", "No batch yet", ("The first batch is running, or the query has not been started.",))
    if snapshot.runner.has_ended:
        ago = short_duration(now - end_time(batches.progress[-1]))
        is_final = snapshot.manifest is not None and snapshot.manifest.final
        head = f"The query was stopped {ago} ago, or has come to its end."
        if is_final:
            head = f"It was closed for good {ago} ago: all results have been emitted, and it accepts no more rows."
        rest = [message for severity, message in reasons if severity in ("bad", "watch")]
        return Verdict("off", "Finished" if is_final else "Stopped", tuple(dict.fromkeys([head, *rest])))
    return Verdict("good", TITLES["good"], tuple(message for _, message in reasons))


TITLES: dict[Level, str] = {"bad": "Trouble", "watch": "Worth a look", "good": "Healthy"}
NOT_RUNNING = "Not running"


def _check_process(snapshot: CheckpointSnapshot, batches: RecentBatches, now: int) -> Iterator[Reason]:
    """Yield a reason if the query's process is gone, or silent for too long; a query that was stopped gives none."""
    runner = snapshot.runner
    who, silence = runner.process or "the process that ran it", short_duration(1e6 * runner.silence)
    if runner.has_ended:
        return
    if runner.is_running is False:
        yield "bad", f"It is not running: {who} is gone, and did not stop it properly. Start it again; nothing is lost."
    elif runner.silence > EXPIRES:
        seems = "hang, or to be suspended" if runner.is_running else "have crashed"
        yield "bad", f"It seems to {seems}: {who} has given no sign of life for {silence}."


def _check_silence(snapshot: CheckpointSnapshot, batches: RecentBatches, now: int) -> Iterator[Reason]:
    last = batches.progress[-1]
    elapsed, trigger = now - end_time(last), last.get("triggerMs") or 0
    if not snapshot.runner.has_ended and elapsed > max(SILENT, TRIGGERS * 1000 * trigger):
        yield "watch", f"No batch for {short_duration(elapsed)}: there is no new input, or a batch takes long."


def _check_overload(snapshot: CheckpointSnapshot, batches: RecentBatches, now: int) -> Iterator[Reason]:
    last = batches.progress[-1]
    for message in (last.get("overload", {}).get("says"), last.get("spilling", {}).get("overload")):
        if message:
            yield "bad", message


def _check_duration(snapshot: CheckpointSnapshot, batches: RecentBatches, now: int) -> Iterator[Reason]:
    """Yield whether the last batch, rounds aside, was in time for its trigger."""
    last = next(
        (progress for progress in reversed(batches.progress) if not progress.get("round")), batches.progress[-1]
    )
    trigger, took = last.get("triggerMs"), last["durationMs"]["total"]
    if trigger is None:
        yield "good", f"The last batch took {format_milliseconds(took)}."
    elif took > trigger:
        yield (
            "watch",
            f"The last batch took {format_milliseconds(took)}, longer than the trigger's {short_seconds(trigger)}.",
        )
    else:
        yield "good", f"It keeps up: the last batch took {format_milliseconds(took)} of {short_seconds(trigger)}."


def _check_warnings(snapshot: CheckpointSnapshot, batches: RecentBatches, now: int) -> Iterator[Reason]:
    for message in batches.progress[-1].get("warnings", []):
        yield "watch", message


def _check_watermark(snapshot: CheckpointSnapshot, batches: RecentBatches, now: int) -> Iterator[Reason]:
    last = batches.progress[-1]
    if last.get("watermark") is None and last.get("heldBackBy") and len(batches.progress) > 1:
        yield "watch", f"Stream '{last['heldBackBy']}' has had no rows yet: no state can leave before it has."


def _check_late_rows(snapshot: CheckpointSnapshot, batches: RecentBatches, now: int) -> Iterator[Reason]:
    """Yield the streams with many late rows: in the last batches or, failing that, in all recorded ones."""
    share = batches.progress[-1].get("lateWarning", LATE_SHARE)
    notices = warn_late_rows(batches.progress, share) or warn_late_rows(batches.progress, share, len(batches.progress))
    yield from (("watch", notice.message) for notice in notices)


def _check_refused_rows(snapshot: CheckpointSnapshot, batches: RecentBatches, now: int) -> Iterator[Reason]:
    """Yield a reason for each kind of refusal that took more than a small share of recent rows."""
    recent = batches.progress[-RECENT:]
    rows = sum(sum(progress.get("inputRows", {}).values()) for progress in recent)
    for kind, name in (("rejected", "rejectedRows"), ("denied", "deniedRows")):
        count = sum(progress.get(name, 0) for progress in recent)
        if count > REFUSED_SHARE * rows:
            where = f"{len(recent)} batches" if len(recent) > 1 else "batch"
            rows_text, verb = ("1 row", "was") if count == 1 else (f"{format_count(count)} rows", "were")
            yield "watch", f"{rows_text} of the last {where} {verb} {kind}, {format_percent(count, rows)}."


RULES: tuple[Callable[[CheckpointSnapshot, RecentBatches, int], Iterator[Reason]], ...] = (
    _check_process,
    _check_overload,
    _check_duration,
    _check_silence,
    _check_warnings,
    _check_late_rows,
    _check_watermark,
    _check_refused_rows,
)
