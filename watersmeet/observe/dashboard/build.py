"""Turns a checkpoint into the view, and judges if the query is healthy; pure: the time is an argument."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from watersmeet.formatting import format_bytes
from watersmeet.observe.dashboard.checkpoint_reader import RECENT, CheckpointSnapshot, Progress, RecentBatches, end_time
from watersmeet.observe.dashboard.dashboard_view import (
    DAY,
    NOTHING,
    Bar,
    BatchChart,
    DashboardView,
    Figure,
    Level,
    LogEntry,
    Table,
    TableCell,
    Verdict,
    format_count,
    format_milliseconds,
    format_percent,
    format_rate,
    short_duration,
    short_seconds,
    short_time,
    text_cell,
)
from watersmeet.observe.dashboard.joins import JoinRecord, join_view, stream_of
from watersmeet.observe.lateness import LATE_SHARE, warn_late_rows
from watersmeet.observe.warnings import describe_all_rejected
from watersmeet.state.manifest.leases import EXPIRES

SILENT = 60_000_000
"""Microseconds without a batch that are worth a look, unless ten triggers take longer."""
TRIGGERS = 10
REFUSED_SHARE = 0.05
"""The share of rejected or denied rows above which it is worth a look."""
Reason = tuple[Level, str]
"""A sentence, and how serious it is."""
SAMPLES = 8
"""The most samples of refused rows that are shown."""
WIDE = 200
"""Characters of such a row that are shown."""
LISTED = 20
"""The most decisions that are shown."""
NAMES = {"chosen": "Strategy", "master": "Master stream", "segmentSeconds": "Seconds of a segment", "ring": "Ring",
         "lengths": "Ring lengths", "order": "Join order"}  # fmt: skip


def build_view(snapshot: CheckpointSnapshot, now: int) -> DashboardView:
    """Return what a screen shows.

    Args:
        snapshot: The checkpoint of a query.
        now: The time, in microseconds since the epoch.
    """
    batches = RecentBatches(snapshot.progress)
    joins: tuple[JoinRecord, ...] = ()
    if snapshot.manifest is not None:
        joins = tuple(JoinRecord("", snapshot.query, snapshot.manifest, batches).walk())
    return DashboardView(
        _title(snapshot),
        snapshot.root.removesuffix("/watersmeet"),
        _format_facts(snapshot),
        short_time(now),
        verdict(snapshot, batches, now),
        figures(batches),
        tuple(map(join_view, joins)),
        batch_chart(batches),
        owed_table(batches),
        list_decisions(batches),
        refused_table(batches),
    )


def _title(snapshot: CheckpointSnapshot) -> str:
    """Return the query's name, or else its streams."""
    name = snapshot.progress[-1].get("name") if snapshot.progress else None
    return str(name or ", ".join(snapshot.query.get("streams", ())) or "join")


def _format_facts(snapshot: CheckpointSnapshot) -> str:
    """Return the subtitle: the last batch, strategy, exchange and the process, as far as they are known."""
    last = snapshot.progress[-1] if snapshot.progress else {}
    batch = f"batch {last['batchId']:,} at {short_time(end_time(last))}" if last else ""
    where = {"driver": "in the driver", "task": "in tasks"}.get(last.get("process", ""), "")
    exchange = last.get("exchange", "")
    facts = (batch, last.get("strategy", ""), f"exchange {exchange}" if exchange else "", where)
    return " · ".join(fact for fact in (*facts, snapshot.runner.process) if fact)


def figures(recent: RecentBatches) -> tuple[Figure, ...]:
    """Return the numbers to watch: batch time, rates, freshness and size of state; none before the first batch."""
    if not recent.progress:
        return ()
    last = recent.progress[-1]
    trigger, duration = last.get("triggerMs"), last["durationMs"]["total"]
    cards = [
        Figure(
            "batch time",
            format_milliseconds(duration),
            f"of {short_seconds(trigger)}" if trigger else "no trigger interval",
            recent.series(lambda p: p["durationMs"]["total"]),
            trigger,
            "watch" if trigger and duration > trigger else "",
        ),
        _rate_figure("rows in", recent, lambda p: sum(p.get("inputRows", {}).values())),
        _rate_figure("results", recent, lambda p: p.get("outputRows", 0)),
        _watermark_figure(recent),
        _latency_figure(recent),
        Figure(
            "state",
            f"{format_count(last['stateRows'])} rows",
            f"{format_bytes(last['stateBytes'])}, {format_count(last['stateChunks'])} chunks",
            recent.series(lambda p: p["stateRows"]),
        ),
    ]
    return tuple(cards)


def _rate_figure(label: str, recent: RecentBatches, measure: Callable[[Progress], float]) -> Figure:
    """Return a figure of something per second, with its count in the last batch and its trend."""
    last = measure(recent.progress[-1])
    return Figure(
        label,
        format_rate(recent.per_second(measure)),
        f"{format_count(last)} in the last batch",
        recent.series(measure),
    )


def _behind_clock(progress: Progress) -> float | None:
    """Return by how many microseconds the watermark is behind the clock; None without a watermark.

    None, too, if they are more than a day apart, as when old data are joined.
    """
    mark = progress.get("watermark")
    if mark is None or abs(end_time(progress) - mark) > DAY:
        return None
    return float(end_time(progress) - mark)


def _watermark_figure(recent: RecentBatches) -> Figure:
    """Return how far the watermark is behind the clock and which stream holds it; its time if there is no clock."""
    last = recent.progress[-1]
    behind, holder = _behind_clock(last), last.get("heldBackBy")
    note = f"held by {holder}" if holder else "held by nobody"
    if behind is None:
        return Figure("watermark", short_time(last.get("watermark")), note)
    return Figure("watermark behind", short_duration(behind), note, recent.series(_behind_clock))


def _latency_figure(recent: RecentBatches) -> Figure:
    """Return the figure of the time from when a task reads a row to when its results are in the sink, with 99 %."""
    now = recent.progress[-1].get("latencyMs") or {}
    value, note = (format_milliseconds(now[name]) if name in now else NOTHING for name in ("p50", "p99"))
    series = recent.series(lambda progress: (progress.get("latencyMs") or {}).get("p50"))
    return Figure("read to result", value, f"median; 99 % in {note}", series)


def batch_chart(recent: RecentBatches) -> BatchChart:
    """Return how long the last batches took, beside the trigger interval; empty before the first batch."""
    if not recent.latest:
        return BatchChart()
    last, first = recent.latest[-1], recent.latest[0]
    trigger = last.get("triggerMs")
    top = 1.15 * max(*(progress["durationMs"]["total"] for progress in recent.latest), trigger or 0, 1)
    return BatchChart(
        tuple(_batch_bar(progress, top) for progress in recent.latest),
        trigger / top if trigger else None,
        format_milliseconds(top),
        f"batch {first['batchId']:,}",
        f"batch {last['batchId']:,}",
        f"trigger {short_seconds(trigger)}" if trigger else "",
    )


def _batch_bar(batch: Progress, top: float) -> Bar:
    """Return a batch as a bar of its three steps, as fractions of `top`; it is late if it outlasted the trigger."""
    duration, trigger = batch["durationMs"], batch.get("triggerMs")
    parts = {name: duration.get(name, 0) for name in ("plan", "job", "commit")}
    steps = ", ".join(f"{name} {format_milliseconds(ms)}" for name, ms in parts.items())
    kind = "round" if batch.get("round") else "batch"
    plan, job, commit = (round(ms / top, 4) for ms in parts.values())
    is_late = bool(trigger and duration["total"] > trigger)
    return Bar(
        f"{kind} {batch['batchId']:,}: {format_milliseconds(duration['total'])} ({steps})", plan, job, commit, is_late
    )


def owed_table(recent: RecentBatches) -> Table:
    """Return what is spilled and owed, with trends; an empty table without spilling."""
    spilling = recent.progress[-1].get("spilling") if recent.progress else None
    if not spilling:
        return Table()
    oldest, units = spilling.get("oldestOwed"), spilling["units"]
    rows = (
        ("probes owed", format_count(spilling["owedProbes"]), "owedProbes"),
        ("results owed, about", format_count(spilling["owedResults"]), "owedResults"),
        ("oldest owed", NOTHING if oldest is None else short_duration(1e6 * oldest), "oldestOwed"),
        ("results paid", format_count(spilling["paidResults"]), "paidResults"),
        (
            "spilled state",
            f"{format_bytes(spilling['spilledBytes'])}, {units['cold']} of {units['cold'] + units['hot']} units",
            "spilledBytes",
        ),
        ("other state", format_bytes(spilling["hotBytes"]), "hotBytes"),
    )
    cells = tuple((text_cell(name), text_cell(value), _owed_trend(recent, key)) for name, value, key in rows)
    return Table(("spilling", "now", "trend"), cells, note=spilling.get("overload", ""))


def _owed_trend(recent: RecentBatches, key: str) -> TableCell:
    return TableCell("", series=recent.series(lambda progress: progress.get("spilling", {}).get(key)))


def refused_table(recent: RecentBatches) -> Table:
    """Return samples of refused rows, at most `SAMPLES`, of the newest batches first."""
    samples = [(batch, sample) for batch in reversed(recent.progress) for sample in batch.get("samples", [])][:SAMPLES]
    return Table(
        ("batch", "stream", "why", "row"),
        tuple(
            (
                text_cell(str(batch["batchId"])),
                text_cell(str(sample.get("stream", ""))),
                text_cell(f"{sample.get('kind', '')}: {sample.get('reason', '')}"),
                text_cell(", ".join(f"{name}: {value}" for name, value in sample.get("row", {}).items())[:WIDE]),
            )
            for batch, sample in samples
        ),
        text_columns=4,
    )


# -- decisions


def list_decisions(recent: RecentBatches) -> tuple[LogEntry, ...]:
    """Return the last `LISTED` decisions and the moves of rows, newest first."""
    entries = [(batch["batchId"], message) for batch in recent.progress for message in _describe_batch(batch)]
    entries = sorted([*entries[-LISTED:], *_describe_moves(recent)], key=lambda entry: -entry[0])
    return tuple(LogEntry(str(batch), message) for batch, message in entries)


def _describe_moves(recent: RecentBatches) -> Iterator[tuple[int, str]]:
    """Yield, for each reason to move rows between nodes, the last batch with it: many batches may move some."""
    moves = [(batch["batchId"], move) for batch in recent.progress if (move := _move_of(batch)).get("rows")]
    for batch, move in {move["why"]: (batch, move) for batch, move in moves}.values():
        often = sum(other["why"] == move["why"] for _, other in moves)
        again = f", as in {often} of the last {len(recent.progress)} batches" if often > 1 else ""
        yield batch, f"{format_count(move['rows'])} rows changed their node{again}: {move['why']}"


def _move_of(batch: Progress) -> Mapping[str, Any]:
    move: Mapping[str, Any] = batch.get("placement", {}).get("moved", {})
    return move


def _describe_batch(batch: Progress) -> Iterator[str]:
    """Yield in sentences what a batch changed and decided, inner joins included; routine payments are left out."""
    for name, (before, after) in batch.get("changes", {}).items():
        yield from _describe_change(name, before, after)
    facts = batch.get("placement", {})
    for entry in facts.get("decisions", []):
        suffix = "" if entry.get("made", True) else " (not made: a dry run)"
        yield f"{entry['before']} → {entry['after']}{suffix}: {entry['why']}"
    decision = batch.get("spilling", {}).get("decision")
    if decision is not None and not decision.get("routine"):
        yield decision["why"]
    for name, inner in batch.get("inner", {}).items():
        yield from (f"In '{name}': {message}" for message in _describe_batch(inner))


def _describe_change(name: str, before: Any, after: Any) -> Iterator[str]:
    """Yield what changed; of join orders only those that did."""
    title = NAMES.get(name, name)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in after:
            if before.get(key) != after[key]:
                yield f"{title} of '{key}': {_format_value(before.get(key))} → {_format_value(after[key])}"
    else:
        yield f"{title}: {_format_value(before)} → {_format_value(after)}"


def _format_value(value: Any) -> str:
    """Return a value in words: join orders as their streams, with `or` between several.

    >>> _format_value([["b", "c"], ["c", "b"]]), _format_value([0, 1]), _format_value(None)
    ('b, c or c, b', '0, 1', 'nothing')
    """
    if isinstance(value, list):
        nested = any(isinstance(part, list) for part in value)
        return (" or " if nested else ", ").join(_format_value(part) for part in value)
    return "nothing" if value is None else str(value)


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
    holder = last.get("heldBackBy")
    if last.get("watermark") is not None or not holder or len(batches.progress) < 2:
        return
    if any(stream_of(progress, holder).get("rejected") for progress in batches.progress):
        yield "watch", describe_all_rejected(holder)
    else:
        yield "watch", f"Stream '{holder}' has had no rows yet: no state can leave before it has."


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
