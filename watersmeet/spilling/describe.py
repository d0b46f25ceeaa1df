"""Spilling in words and numbers: the `spilling` field of `progress`, and the lines of `explain`."""

from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.arguments import format_duration, format_roughly
from watersmeet.formatting import format_bytes
from watersmeet.spilling.decisions import ControllerRecord, Decision
from watersmeet.spilling.options import Spill
from watersmeet.spilling.parts import Part, hot_parts, spilled_parts


def spilling_progress(
    parts: Sequence[Part], record: ControllerRecord, decision: Decision, paid: int, now: int, spill: Spill
) -> dict[str, Any]:
    """Return the `spilling` field of `progress`.

    Args:
        parts: The parts of the state that the next batch starts from.
        record: The controller's record.
        decision: The decision after the batch.
        paid: The batch's results that had been owed.
        now: The driver's clock, in microseconds.
        spill: The user's options.
    """
    hot, spilled, owed = hot_parts(parts), spilled_parts(parts), sum(part.owed for part in parts)
    oldest = min((part.oldest for part in spilled if part.oldest is not None), default=None)
    overload = record.overload_warning(now, owed, spill.interval_us)
    return {
        "hotBytes": sum(part.bytes for part in hot),
        "spilledRows": sum(part.rows for part in spilled),
        "spilledBytes": sum(part.bytes for part in spilled),
        "owedProbes": owed,
        "owedResults": round(sum(map(_expected_results, spilled))),
        "oldestOwed": None if oldest is None else (now - oldest) / 1e6,
        "paidResults": paid,
        "units": {"hot": len(hot), "cold": len(spilled), "owing": sum(bool(part.owed) for part in spilled)},
        "decision": _decision_progress(decision),
        "log": [f"batch {batch}: {why}" for batch, _, why in record.log],
        **({} if overload is None else {"overload": overload}),
    }


def _expected_results(part: Part) -> float:
    """Return a guess of how many results a part is owed: as many for a pair as it has had so far."""
    worth = part.worth
    return part.pairs(part.owed) * worth.results / worth.pairs if worth.pairs else 0.0


def _decision_progress(decision: Decision) -> dict[str, Any] | None:
    """Return a decision as the progress has it; None if nothing was decided."""
    if not decision.kind:
        return None
    return {
        "kind": decision.kind,
        "why": decision.why,
        "spilled": len(decision.spill),
        "spilledBytes": sum(part.bytes for part in decision.spill),
        "paid": len(decision.pay),
        "back": len(decision.back),
        "routine": decision.routine,
    }


def describe_options(spill: Spill, partitions: int) -> list[str]:
    """Return the lines of `explain` on when and what a join that hasn't started will spill and pay.

    Args:
        spill: The user's options.
        partitions: The number of partitions of the values; 1 if units are slices of time only.
    """
    memory = [] if spill.memory is None else [f"hot state takes {_format_size(spill.memory)}"]
    time = [] if spill.seconds is None else [f"batches take longer than {format_duration(round(spill.seconds * 1e6))}"]
    units = f"{partitions} partitions of the values, cut by slices of time" if partitions > 1 else "slices of time"
    pay = "" if spill.pay in (None, spill.policy) else f", paid by '{spill.pay}'"
    disk = "" if spill.disk is None else f", and the oldest of it once spilled state takes {_format_size(spill.disk)}"
    return [
        f"  once {' or '.join(memory + time)}, about {spill.share:.0%} of the state is spilled, by policy "
        f"'{spill.policy}'{pay}: {units}",
        f"  below {spill.low:.0%} of that it comes back, at most every {format_duration(spill.interval_us)}; what has "
        f"been owed for {format_duration(spill.oldest_us)} is paid at once{disk}",
    ]


def _format_size(size: str | int) -> str:
    """Return a size in the user's own words, if it was given as text."""
    return size if isinstance(size, str) else format_bytes(size)


def describe_spilling(progress: Mapping[str, Any]) -> list[str]:
    """Return the lines of `explain` on what a running join has spilled and owes, from its `spilling` field."""
    units, oldest = progress["units"], progress["oldestOwed"]
    total = units["cold"] + units["hot"]
    lines = [f"  spilled: {units['cold']} of {total} parts of the state, {progress['spilledRows']:,} rows"]
    if progress["owedProbes"]:
        age = "" if oldest is None else f", the oldest for {format_roughly(int(oldest * 1e6))}"
        guess = f"about {progress['owedResults']:,} results (a guess)"
        lines.append(f"  owed: {progress['owedProbes']:,} probes, {guess}{age}")
    lines += [f"  decided after {entry}" for entry in progress["log"]]
    return lines + ([f"  {progress['overload']}"] if "overload" in progress else [])
