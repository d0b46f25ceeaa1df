"""Advice before a join starts: a strategy, its nodes and their costs, at the current rate and at multiples of it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.adapt.auto import Auto
from watersmeet.adapt.chart import draw
from watersmeet.adapt.forecast import FURTHEST, Forecast, SampleMeasurements, Settings
from watersmeet.adapt.pricing import describe_ring_limit
from watersmeet.errors import DefinitionError
from watersmeet.formatting import format_bytes, format_number, format_seconds, render_table, shorten

FACTORS = (1, 2, 5, 10)
"""The multiples of the rate that the advice covers."""
FEW_PAIRS = 10_000
"""With fewer pairs per batch, the time of a pair is dominated by the fixed cost of the batch."""
HEADINGS = (
    *("rate", "tuples/s", "results/s", "strategy", "nodes", "at least", "batch s", "fastest"),
    *("holds tuples/s", "and results/s", "state rows", "state", "network/s"),
)


@dataclass(frozen=True)
class Advice:
    """A recommendation for running a join; returned by `wm.advise`.

    Attributes:
        rows: The recommendation and predictions for each multiple of the rate.
        curves: For each multiple the seconds of a batch by the number of nodes, each under the best strategy for it.
        measured: The measurements of the sample.
        settings: The settings for which the advice holds.
        strategy: The `strategy=` with which the join runs as recommended.
        notes: Caveats, as sentences.
    """

    rows: list[dict[str, Any]]
    curves: Mapping[int, Mapping[int, float]]
    measured: Mapping[str, Any]
    settings: Settings
    strategy: Auto
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return render_advice(self.measured, self.rows, self._title(), self.notes)

    def _title(self) -> str:
        goal = "the fewest nodes that keep up" if self.settings.goal is None else f"goal {self.settings.goal}"
        return f"Advice for a batch every {self.settings.every:g} s, {goal}: strategy={self.strategy.source()}"

    def show(self) -> None:
        """Print the measurements, and the advice as a table."""
        print(self)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the advice: the seconds of a batch by nodes, and state and network by rate.

        Args:
            path: A file whose name ends in `.svg`; in another format, such as `.png`, matplotlib draws it.

        Raises:
            DefinitionError: If that needs matplotlib, which is missing, or it doesn't know the format.
        """
        draw(path, self.rows, self.curves, self.settings.every)


def build_advice(sample: SampleMeasurements, settings: Settings, own: Auto | None = None) -> Advice:
    """Return a recommendation for running a join.

    Args:
        sample: The measurements of a sample of its streams.
        settings: The settings.
        own: The join's own strategy, if it is an Auto.

    Raises:
        DefinitionError: If a stream's rate is unknown, or if the settings have a rate for an unknown stream.
    """
    check_streams("rates", settings.rates, sample.state.names)
    forecast = Forecast(sample, settings)
    curves = {factor: forecast.curve(factor) for factor in FACTORS}
    rows = [forecast.row(factor) for factor in FACTORS]
    notes = [*_sample_notes(sample), *(note for row in rows for note in _row_notes(row, settings))]
    notes += [] if own is None else _own_strategy_notes(own, forecast, rows[0])
    return Advice(rows, curves, forecast.measurements, settings, forecast.strategy, tuple(notes))


def check_streams(what: str, by_name: object, streams: Sequence[str]) -> None:
    """Reject a value that is not a dict by the names of the join's streams.

    Args:
        what: How an error calls it.
        by_name: The value.
        streams: The names.

    Raises:
        DefinitionError: If it isn't one.
    """
    if not isinstance(by_name, Mapping):
        raise DefinitionError(
            f"{what}={shorten(by_name)}: give a dict by the streams' names, such as {{'{streams[0]}': ...}}."
        )
    for name in by_name:
        if name not in streams:
            raise DefinitionError(f"{what}: the join has no stream '{name}'; it has {', '.join(streams)}.")


def _sample_notes(sample: SampleMeasurements) -> list[str]:
    """Return caveats about a sample."""
    notes, names, state = [], sample.state.names, sample.state
    longest = state.reach / 1e6
    if sample.fill_seconds < longest:
        notes.append(
            f"The sample fills windows for {sample.fill_seconds:.3g} s, the longest is {longest:g} s: the results "
            "of full windows are extrapolated."
        )
    pairs = sum(hop.pairs for hop in state.hops)
    if pairs < FEW_PAIRS:
        notes.append(
            f"There were few pairs ({pairs:.0f} per batch), so their time is a rough estimate; use a longer sample."
        )
    endless = [name for at, name in enumerate(names) if state.streams[at].window is None and at not in sample.constant]
    if endless:
        notes.append(f"{', '.join(endless)}: no time window, so the state shown is that of the sample, and will grow.")
    return notes


def _row_notes(row: Mapping[str, Any], settings: Settings) -> list[str]:
    """Return caveats at a multiple of the rate: that no allowed number of nodes keeps up, or what limits a ring."""
    notes, at = [], f"At {row['factor']}x the rate"
    nodes = f"{row['nodes']} node{'s' * (row['nodes'] > 1)}"
    late = f"{format_number(row['batchSeconds'])} s on {nodes} and the next is due after {settings.every:g} s"
    if row["nodesNeeded"] is None:
        most = max(settings.max_nodes, FURTHEST)
        notes.append(f"{at} a batch takes {late}: no strategy on up to {most} nodes keeps up.")
    elif row["nodesNeeded"] > settings.max_nodes:
        notes.append(f"{at} a batch takes {late}: {row['nodesNeeded']} nodes would keep up.")
    if row["longestRing"] is not None and row["longestRing"] < settings.max_nodes:
        notes.append(f"{at} {describe_ring_limit(row['longestRing'], settings.bandwidth)}")
    return notes


def _own_strategy_notes(own: Auto, forecast: Forecast, row: Mapping[str, Any]) -> list[str]:
    """Return a note if the join would choose something other than the recommendation."""
    choice = forecast.choose(own, 1)
    if (choice.name, choice.nodes) == (row["strategy"], row["nodes"]):
        return []
    return [
        f"The join as it is defined, with {own.source()}, would take {choice.label} at this rate: to follow the "
        "advice, give it the strategy above."
    ]


# -- as text


def render_advice(
    measurements: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], title: str, notes: Sequence[str]
) -> str:
    """Return the measurements, the rows as a table, and the notes as text."""
    lines = [*_measurement_lines(measurements), "", title, *render_table(HEADINGS, [_row_cells(row) for row in rows])]
    return "\n".join([*lines, *(f"! {note}" for note in notes)])


def _measurement_lines(measurements: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of text on what was measured: pairs, streams with their probe orders, and Python predicates."""
    yield (
        f"Measured on {measurements['tuples']:,} tuples over {measurements['seconds']:.3g} s of event time: "
        f"{format_seconds(measurements['pairSeconds'])} a pair, {measurements['rowBytes']:.0f} bytes a tuple"
    )
    for name, stream in measurements["streams"].items():
        if "rows" in stream:
            yield f"  {name}: a table of {stream['rows']:,} rows"
            continue
        order = ", then ".join(f"{to} ({part:.2%} match)" for to, part in stream["matching"].items())
        suffix = " as given" if stream["given"] else ""
        yield f"  {name}: {format_number(stream['tuplesPerSecond'])} tuples/s{suffix}, probe {order}"
    for name, cost in measurements["predicates"].items():
        each = cost["ms"] / 1000 / cost["pairs"] if cost["pairs"] else 0.0
        part = cost["matches"] / cost["pairs"] if cost["pairs"] else 0.0
        yield f"  {name}(): {format_seconds(each)} a call, {part:.2%} match"


def _row_cells(row: Mapping[str, Any]) -> list[str]:
    """Return the predictions at a multiple of the rate as the cells of a table row, in the order of `HEADINGS`."""
    numbers = [format_number(row[key]) for key in ("tuplesPerSecond", "resultsPerSecond")]
    most = [format_number(row[key]) for key in ("mostTuplesPerSecond", "mostResultsPerSecond", "stateRows")]
    bytes_ = [format_bytes(row[key]) for key in ("stateBytes", "networkBytesPerSecond")]
    nodes = [str(row["nodes"]), str(row["nodesNeeded"] or "-"), format_number(row["batchSeconds"])]
    fastest = f"{format_number(row['fastestSeconds'])} on {row['fastestNodes']}"
    return [f"{row['factor']}x", *numbers, row["strategy"], *nodes, fastest, *most, *bytes_]
