"""Advice before a join starts: strategy, nodes and what they would take, at the rate of now and at multiples of it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.adapt.auto import Auto
from watersmeet.adapt.chart import draw
from watersmeet.adapt.forecast import FURTHEST, Forecast, Sample, Settings
from watersmeet.adapt.pricing import waiting
from watersmeet.adapt.report import figure, report
from watersmeet.errors import DefinitionError
from watersmeet.formatting import shorten

FACTORS = (1, 2, 5, 10)
"""The multiples of the rate that advice is given for."""
FEW_PAIRS = 10_000
"""With fewer pairs a batch, the time of one is mostly that of the batch around it."""


@dataclass(frozen=True)
class Advice:
    """What to run a join on; made by `wm.advise`.

    Attributes:
        rows: For each multiple of the rate what is recommended and predicted.
        curves: For each multiple the seconds of a batch by the number of nodes, each under the best strategy for it.
        measured: What the sample measured.
        settings: What the advice is for.
        strategy: What to give the join as `strategy=`, so that it runs as recommended.
        notes: What to mind, as sentences.
    """

    rows: list[dict[str, Any]]
    curves: Mapping[int, Mapping[int, float]]
    measured: Mapping[str, Any]
    settings: Settings
    strategy: Auto
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return report(self.measured, self.rows, self._title(), self.notes)

    def _title(self) -> str:
        goal = "the fewest nodes that keep up" if self.settings.goal is None else f"goal {self.settings.goal}"
        return f"Advice for a batch every {self.settings.every:g} s, {goal}: strategy={self.strategy.written()}"

    def show(self) -> None:
        """Print what was measured, and the advice as a table."""
        print(self)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the advice: the seconds of a batch by nodes, state and network by rate.

        Args:
            path: A file whose name ends in `.svg`; in another format, such as `.png`, matplotlib draws it.

        Raises:
            DefinitionError: If that needs matplotlib, which is missing, or it doesn't know the format.
        """
        draw(path, self.rows, self.curves, self.settings.every)


def advice(sample: Sample, settings: Settings, own: Auto | None = None) -> Advice:
    """Return what to run a join on.

    Args:
        sample: What a sample of its streams measured.
        settings: What the advice is for.
        own: The join's own strategy, if it chooses.

    Raises:
        DefinitionError: If a stream's rate is not known, or given for a stream that isn't there.
    """
    check_streams("rates", settings.rates, sample.state.names)
    forecast = Forecast(sample, settings)
    curves = {factor: forecast.curve(factor) for factor in FACTORS}
    rows = [forecast.row(factor) for factor in FACTORS]
    notes = [*_of_sample(sample), *(note for row in rows for note in _of_row(row, settings))]
    notes += [] if own is None else _of_own(own, forecast, rows[0])
    return Advice(rows, curves, forecast.measured, settings, forecast.strategy, tuple(notes))


def check_streams(what: str, given: object, streams: Sequence[str]) -> None:
    """Refuse names that no stream of the join has, and what is no dict by their names."""
    if not isinstance(given, Mapping):
        raise DefinitionError(
            f"{what}={shorten(given)}: give a dict by the streams' names, such as {{'{streams[0]}': ...}}."
        )
    for name in given:
        if name not in streams:
            raise DefinitionError(f"{what}: the join has no stream '{name}'; it has {', '.join(streams)}.")


def _of_sample(sample: Sample) -> list[str]:
    """Return what to mind of a sample."""
    notes, names, state = [], sample.state.names, sample.state
    longest = state.reach / 1e6
    if sample.filled < longest:
        notes.append(
            f"The sample fills windows for {sample.filled:.3g} s, the longest is {longest:g} s: what a full one finds "
            "is extrapolated."
        )
    looked_at = sum(hop.pairs for hop in state.hops)
    if looked_at < FEW_PAIRS:
        notes.append(f"Few pairs were met ({looked_at:.0f} a batch): their time is rough; a longer sample tells more.")
    endless = [name for at, name in enumerate(names) if state.streams[at].window is None and at not in sample.constant]
    if endless:
        notes.append(f"{', '.join(endless)}: no window in time, so state is that of the sample, and grows.")
    return notes


def _of_row(row: Mapping[str, Any], settings: Settings) -> list[str]:
    """Return what to mind at a multiple of the rate."""
    notes, at = [], f"At {row['factor']}x the rate"
    nodes = f"{row['nodes']} node{'s' * (row['nodes'] > 1)}"
    late = f"{figure(row['batchSeconds'])} s on {nodes} and the next is due after {settings.every:g} s"
    if row["nodesNeeded"] is None:
        most = max(settings.max_nodes, FURTHEST)
        notes.append(f"{at} a batch takes {late}: no strategy on up to {most} nodes keeps up.")
    elif row["nodesNeeded"] > settings.max_nodes:
        notes.append(f"{at} a batch takes {late}: {row['nodesNeeded']} nodes would keep up.")
    if row["longestRing"] is not None and row["longestRing"] < settings.max_nodes:
        notes.append(f"{at} {waiting(row['longestRing'], settings.bandwidth)}")
    return notes


def _of_own(own: Auto, forecast: Forecast, row: Mapping[str, Any]) -> list[str]:
    """Return that a join would choose something else than what is recommended, if so."""
    taken = forecast.taken(own, 1)
    if (taken.name, taken.nodes) == (row["strategy"], row["nodes"]):
        return []
    return [
        f"The join as it is defined, with {own.written()}, would take {taken.label} at this rate: to follow the "
        "advice, give it the strategy above."
    ]
