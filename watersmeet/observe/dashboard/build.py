"""Turns what is recorded into the view; pure: the time is given."""

from collections.abc import Callable

from watersmeet.formatting import format_bytes
from watersmeet.observe.dashboard.course import Course, Progress, ended
from watersmeet.observe.dashboard.decisions import decisions
from watersmeet.observe.dashboard.joins import JoinRecord, join_view
from watersmeet.observe.dashboard.recorded import Recorded
from watersmeet.observe.dashboard.verdict import verdict
from watersmeet.observe.dashboard.view import Bar, Batches, Cell, Figure, Table, View
from watersmeet.observe.dashboard.words import DAY, NOTHING, brief, clock, count, lasting, milliseconds, plain, rate

SAMPLES = 8
"""Rows that were not joined, of which samples are shown."""
WIDE = 200
"""Characters of such a row that are shown."""


def view(recorded: Recorded, now: int) -> View:
    """Return what a screen shows.

    Args:
        recorded: What is recorded of a query.
        now: The time, in microseconds since the epoch.
    """
    course = Course(recorded.progress)
    joins: tuple[JoinRecord, ...] = ()
    if recorded.manifest is not None:
        joins = tuple(JoinRecord("", recorded.query, recorded.manifest, course).walk())
    return View(
        _title(recorded),
        recorded.root.removesuffix("/watersmeet"),
        _facts(recorded),
        clock(now),
        verdict(recorded, course, now),
        figures(course),
        tuple(map(join_view, joins)),
        batches(course),
        debts(course),
        decisions(course),
        refused(course),
    )


def _title(recorded: Recorded) -> str:
    """Return what the user calls the query, or else its streams."""
    name = recorded.progress[-1].get("name") if recorded.progress else None
    return str(name or ", ".join(recorded.query.get("streams", ())) or "join")


def _facts(recorded: Recorded) -> str:
    last = recorded.progress[-1] if recorded.progress else {}
    batch = f"batch {last['batchId']:,} at {clock(ended(last))}" if last else ""
    where = {"driver": "in the driver", "task": "in tasks"}.get(last.get("process", ""), "")
    exchange = last.get("exchange", "")
    facts = (batch, last.get("strategy", ""), f"exchange {exchange}" if exchange else "", where)
    return " · ".join(fact for fact in (*facts, recorded.holder.process) if fact)


def figures(course: Course) -> tuple[Figure, ...]:
    """Return the numbers to watch: how long, how many, how fresh, how much."""
    if not course.batches:
        return ()
    last = course.batches[-1]
    trigger, took = last.get("triggerMs"), last["durationMs"]["total"]
    figures = [
        Figure(
            "batch time",
            milliseconds(took),
            f"of {brief(trigger)}" if trigger else "no trigger interval",
            course.series(lambda p: p["durationMs"]["total"]),
            trigger,
            "watch" if trigger and took > trigger else "",
        ),
        _flow("rows in", course, lambda p: sum(p.get("inputRows", {}).values())),
        _flow("results", course, lambda p: p.get("outputRows", 0)),
        _watermark(course),
        _latency(course),
        Figure(
            "state",
            f"{count(last['stateRows'])} rows",
            f"{format_bytes(last['stateBytes'])}, {count(last['stateChunks'])} chunks",
            course.series(lambda p: p["stateRows"]),
        ),
    ]
    return tuple(figures)


def _flow(label: str, course: Course, of: Callable[[Progress], float]) -> Figure:
    last = of(course.batches[-1])
    return Figure(label, rate(course.per_second(of)), f"{count(last)} in the last batch", course.series(of))


def _behind(progress: Progress) -> float | None:
    """Return how far behind the clock a watermark is, if it is about now at all: old data may be joined, too."""
    mark = progress.get("watermark")
    if mark is None or abs(ended(progress) - mark) > DAY:
        return None
    return float(ended(progress) - mark)


def _watermark(course: Course) -> Figure:
    last = course.batches[-1]
    behind, held = _behind(last), last.get("heldBackBy")
    note = f"held by {held}" if held else "held by nobody"
    if behind is None:
        return Figure("watermark", clock(last.get("watermark")), note)
    return Figure("watermark behind", lasting(behind), note, course.series(_behind))


def _latency(course: Course) -> Figure:
    """Return how long rows took from when a task read them to their results in the sink."""
    now = course.batches[-1].get("latencyMs") or {}
    value, note = (milliseconds(now[name]) if name in now else NOTHING for name in ("p50", "p99"))
    series = course.series(lambda progress: (progress.get("latencyMs") or {}).get("p50"))
    return Figure("read to result", value, f"median; 99 % in {note}", series)


def batches(course: Course) -> Batches:
    """Return how long the last batches took, against the trigger."""
    if not course.shown:
        return Batches()
    last, first = course.shown[-1], course.shown[0]
    trigger = last.get("triggerMs")
    top = 1.15 * max(*(found["durationMs"]["total"] for found in course.shown), trigger or 0, 1)
    return Batches(
        tuple(_bar(found, top) for found in course.shown),
        trigger / top if trigger else None,
        milliseconds(top),
        f"batch {first['batchId']:,}",
        f"batch {last['batchId']:,}",
        f"trigger {brief(trigger)}" if trigger else "",
    )


def _bar(batch: Progress, top: float) -> Bar:
    took, trigger = batch["durationMs"], batch.get("triggerMs")
    parts = {name: took.get(name, 0) for name in ("plan", "job", "commit")}
    steps = ", ".join(f"{name} {milliseconds(ms)}" for name, ms in parts.items())
    kind = "round" if batch.get("round") else "batch"
    plan, job, commit = (round(ms / top, 4) for ms in parts.values())
    late = bool(trigger and took["total"] > trigger)
    return Bar(f"{kind} {batch['batchId']:,}: {milliseconds(took['total'])} ({steps})", plan, job, commit, late)


def debts(course: Course) -> Table:
    """Return what is put off and owed."""
    told = course.batches[-1].get("spilling") if course.batches else None
    if not told:
        return Table()
    oldest, units = told.get("oldestOwed"), told["units"]
    rows = (
        ("probes owed", count(told["owedProbes"]), "owedProbes"),
        ("results owed, about", count(told["owedResults"]), "owedResults"),
        ("oldest debt", NOTHING if oldest is None else lasting(1e6 * oldest), "oldestOwed"),
        ("results paid", count(told["paidResults"]), "paidResults"),
        (
            "cold state",
            f"{format_bytes(told['spilledBytes'])}, {units['cold']} of {units['cold'] + units['hot']} units",
            "spilledBytes",
        ),
        ("hot state", format_bytes(told["hotBytes"]), "hotBytes"),
    )
    cells = tuple((plain(name), plain(value), _owed(course, key)) for name, value, key in rows)
    return Table(("put off", "now", "trend"), cells, note=told.get("overload", ""))


def _owed(course: Course, key: str) -> Cell:
    return Cell("", series=course.series(lambda progress: progress.get("spilling", {}).get(key)))


def refused(course: Course) -> Table:
    """Return samples of the last rows that were not joined."""
    found = [(batch, sample) for batch in reversed(course.batches) for sample in batch.get("samples", [])][:SAMPLES]
    return Table(
        ("batch", "stream", "why", "row"),
        tuple(
            (
                plain(str(batch["batchId"])),
                plain(str(sample.get("stream", ""))),
                plain(f"{sample.get('kind', '')}: {sample.get('reason', '')}"),
                plain(", ".join(f"{name}: {value}" for name, value in sample.get("row", {}).items())[:WIDE]),
            )
            for batch, sample in found
        ),
        texts=4,
    )
