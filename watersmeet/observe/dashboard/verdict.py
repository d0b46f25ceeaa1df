"""The verdict: is the join healthy, does it keep up, and if not, why?"""

from collections.abc import Callable, Iterator

from watersmeet.observe.dashboard.course import RECENT, Course, ended
from watersmeet.observe.dashboard.recorded import Recorded
from watersmeet.observe.dashboard.view import Level, Verdict
from watersmeet.observe.dashboard.words import brief, count, lasting, milliseconds, percent
from watersmeet.observe.lateness import LATE_SHARE, late_rows
from watersmeet.state.manifest.leases import EXPIRES

SILENT = 60_000_000
"""Microseconds without a batch after which that is said; or ten triggers."""
TRIGGERS = 10
MUCH = 0.05
"""The part of rows that is refused from which on that is worth a look."""
Reason = tuple[Level, str]


def verdict(recorded: Recorded, course: Course, now: int) -> Verdict:
    """Return how a query stands.

    Args:
        recorded: What is recorded of it.
        course: Its batches.
        now: The time, in microseconds since the epoch.
    """
    if recorded.problem:
        return Verdict("bad", "Can't be read", (recorded.problem,))
    rules = RULES if course.batches else (_gone,)
    reasons = [reason for rule in rules for reason in rule(recorded, course, now)]
    for level in ("bad", "watch"):
        found = [says for kind, says in reasons if kind == level]
        if found and not recorded.holder.ended:
            rest = [says for kind, says in reasons if kind not in (level, "good")]
            title = NOT_RUNNING if recorded.holder.running is False else TITLES[level]
            return Verdict(level, title, tuple(dict.fromkeys([*found, *rest])))
    if not course.batches:
        return Verdict("off", "No batch yet", ("The first batch is on its way, or the query has not been started.",))
    if recorded.holder.ended:
        ago, final = lasting(now - ended(course.batches[-1])), recorded.manifest is not None and recorded.manifest.final
        says = [f"The query was stopped {ago} ago, or has come to its end."]
        if final:
            says = [f"It was closed for good {ago} ago: all results are out, and it takes no more rows."]
        says += [told for kind, told in reasons if kind in ("bad", "watch")]
        return Verdict("off", "Finished" if final else "Stopped", tuple(dict.fromkeys(says)))
    return Verdict("good", TITLES["good"], tuple(says for _, says in reasons))


TITLES: dict[Level, str] = {"bad": "Trouble", "watch": "Worth a look", "good": "Healthy"}
NOT_RUNNING = "Not running"


def _gone(recorded: Recorded, course: Course, now: int) -> Iterator[Reason]:
    holder = recorded.holder
    who, silent = holder.process or "the process that ran it", lasting(1e6 * holder.silent)
    if holder.ended:
        return
    if holder.running is False:
        yield "bad", f"Nobody runs it: {who} is gone, and did not stop it first. Start it again; nothing is lost."
    elif holder.silent > EXPIRES:
        seems = "hang, or to be suspended" if holder.running else "have crashed"
        yield "bad", f"It seems to {seems}: {who} has given no sign of life for {silent}."


def _silent(recorded: Recorded, course: Course, now: int) -> Iterator[Reason]:
    last = course.batches[-1]
    passed, trigger = now - ended(last), last.get("triggerMs") or 0
    if not recorded.holder.ended and passed > max(SILENT, TRIGGERS * 1000 * trigger):
        yield "watch", f"No batch for {lasting(passed)}: there is no new input, or a batch takes long."


def _overload(recorded: Recorded, course: Course, now: int) -> Iterator[Reason]:
    last = course.batches[-1]
    for told in (last.get("overload", {}).get("says"), last.get("spilling", {}).get("overload")):
        if told:
            yield "bad", told


def _slow(recorded: Recorded, course: Course, now: int) -> Iterator[Reason]:
    last = next((found for found in reversed(course.batches) if not found.get("round")), course.batches[-1])
    trigger, took = last.get("triggerMs"), last["durationMs"]["total"]
    if trigger is None:
        yield "good", f"The last batch took {milliseconds(took)}."
    elif took > trigger:
        yield "watch", f"The last batch took {milliseconds(took)}, longer than the trigger's {brief(trigger)}."
    else:
        yield "good", f"It keeps up: the last batch took {milliseconds(took)} of {brief(trigger)}."


def _warned(recorded: Recorded, course: Course, now: int) -> Iterator[Reason]:
    for says in course.batches[-1].get("warnings", []):
        yield "watch", says


def _waiting(recorded: Recorded, course: Course, now: int) -> Iterator[Reason]:
    last = course.batches[-1]
    if last.get("watermark") is None and last.get("heldBackBy") and len(course.batches) > 1:
        yield "watch", f"Stream '{last['heldBackBy']}' has brought no rows yet: no state can go before it does."


def _too_late(recorded: Recorded, course: Course, now: int) -> Iterator[Reason]:
    """Yield the streams that many rows were late of: lately, or else in all batches that are on record."""
    share = course.batches[-1].get("lateWarning", LATE_SHARE)
    notices = late_rows(course.batches, share) or late_rows(course.batches, share, len(course.batches))
    yield from (("watch", notice.says) for notice in notices)


def _refused(recorded: Recorded, course: Course, now: int) -> Iterator[Reason]:
    recent = course.batches[-RECENT:]
    rows = sum(sum(found.get("inputRows", {}).values()) for found in recent)
    for kind, name in (("rejected", "rejectedRows"), ("denied", "deniedRows")):
        lost = sum(found.get(name, 0) for found in recent)
        if lost > MUCH * rows:
            which = f"{len(recent)} batches" if len(recent) > 1 else "batch"
            some, were = ("1 row", "was") if lost == 1 else (f"{count(lost)} rows", "were")
            yield "watch", f"{some} of the last {which} {were} {kind}, {percent(lost, rows)}."


RULES: tuple[Callable[[Recorded, Course, int], Iterator[Reason]], ...] = (
    *(_gone, _overload, _slow, _silent, _warned, _too_late, _waiting, _refused),
)
