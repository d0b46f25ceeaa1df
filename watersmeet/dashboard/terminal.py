"""The view in a terminal."""

from collections.abc import Iterator, Sequence
from math import ceil

from rich import box
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from watersmeet.dashboard.view import Batches, Cell, Figure, Hop, JoinView, Level, Said, Series, StateMap, Table, View

_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), "\N{REPLACEMENT CHARACTER}")
"""What a terminal would obey, in names and values that come from data."""
STYLES: dict[Level, str] = {"": "", "good": "green", "watch": "yellow", "bad": "bold red", "off": "dim"}
TICKS = "▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
WIDTH = 60
"""Characters of the map of state."""
SPARK = 20


def screen(view: View) -> RenderableType:
    """Return the view as rich prints it."""
    return Group(*_parts(view))


def _parts(view: View) -> Iterator[RenderableType]:
    yield Text.assemble(_text(view.title, "bold"), "  ", _text(view.facts, "dim"))
    verdict = Text.assemble((f"● {view.verdict.title}", f"{STYLES[view.verdict.level]} bold"))
    for says in view.verdict.says:
        verdict.append(_text(f"  {says}"))
    yield verdict
    if view.figures:
        yield _figures(view.figures)
    for join in view.joins:
        yield from _join(join)
    if view.batches.bars:
        yield _batches(view.batches)
    if view.debts.rows:
        yield _titled("Put off, and owed", _table(view.debts))
    if view.decisions:
        yield _titled("Decisions, the last first", _said(view.decisions))
    if view.refused.rows:
        yield _titled("Rows that were not joined, samples", _table(view.refused))
    yield _text(f"{view.place} · read at {view.now}, all times UTC", style="dim")


def _text(text: str, style: str = "") -> Text:
    return Text(text.translate(_CONTROLS), style)


def _titled(title: str, *parts: RenderableType) -> RenderableType:
    return Padding(Group(_text(title, style="bold cyan"), *parts), (1, 0, 0, 0))


def spark(series: Series, width: int = SPARK) -> str:
    """Return a course as a line of blocks.

    >>> spark((0, 1, None, 2))
    '▁▅ █'
    """
    shown = series[-width:]
    top = max((value for value in shown if value is not None), default=0) or 1
    return "".join(" " if value is None else TICKS[round(value / top * (len(TICKS) - 1))] for value in shown)


def _figures(figures: Sequence[Figure]) -> RenderableType:
    cards = [
        Group(
            _text(figure.label, style="dim"),
            _text(figure.value, style=f"bold {STYLES[figure.level]}"),
            _text(figure.note, style="dim"),
            _text(spark(figure.series), style="cyan"),
        )
        for figure in figures
    ]
    return Padding(Columns(cards, padding=(0, 3)), (1, 0, 0, 0))


def _join(join: JoinView) -> Iterator[RenderableType]:
    name = f" (join '{join.name}')" if join.name else ""
    yield _titled(f"Streams{name}", _text(join.where, style="dim"), _text(join.watermark), _table(join.streams))
    if join.funnel:
        yield _titled(f"Where pairs go, last batch; bars by digits{name}", *map(_hop, join.funnel))
    if join.predicates.rows:
        yield _titled(f"Python predicates, last batch{name}", _table(join.predicates))
    if join.state.lanes:
        yield _titled(f"State along event time, the denser the more rows{name}", _map(join.state))
        yield _titled("Goes next, once the watermark has passed", _table(join.state.leaving))
    if join.nodes.rows:
        yield _titled(f"Nodes, last batch{name}", _table(join.nodes))


def _table(table: Table) -> RenderableType:
    grid = Grid(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for at, name in enumerate(table.columns):
        grid.add_column(name, justify="left" if at < table.texts else "right", overflow="fold")
    for row in table.rows:
        grid.add_row(*map(_cell, row))
    return Group(grid, _text(table.note)) if table.note else grid


def _cell(cell: Cell) -> Text:
    text = _text(spark(cell.series, 12), style="cyan") if cell.series else _text(cell.text, style=STYLES[cell.level])
    if cell.share is not None:  # before the number, or numbers would not be flush
        return Text.assemble((_bar(cell.share, 6), "cyan"), " ", text)
    return text


def _bar(share: float, width: int) -> str:
    return ("█" * round(share * width) or "▏").ljust(width)


def _hop(hop: Hop) -> RenderableType:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    for step in hop.steps:
        bar = Text(_bar(step.share, 24), style="cyan")
        grid.add_row(_text(step.label), bar, _text(step.count.rjust(9)), _text(step.note, style="dim"))
        for line in step.nearly:
            grid.add_row("", "", "", _text(line, style="dim"))
    return Group(_text(hop.title, style="bold"), grid)


def _map(state: StateMap) -> RenderableType:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    stream = ""
    for lane in state.lanes:
        weights = [0.0] * WIDTH
        for block in lane.blocks:
            first, last = (min(WIDTH - 1, int(at * WIDTH)) for at in (block.start, block.end))
            for at in range(first, last + 1):
                weights[at] = max(weights[at], block.weight, 0.01)
        text = _text("".join(SHADES[ceil(weight * (len(SHADES) - 1))] for weight in weights), style="cyan")
        if state.watermark is not None:
            at = min(WIDTH - 1, int(state.watermark * WIDTH))
            text = Text.assemble(text[:at], ("│", "yellow"), text[at + 1 :])
        grid.add_row(_text(lane.stream if lane.stream != stream else ""), _text(lane.node, style="dim"), text)
        stream = lane.stream
    axis = _text(state.first + state.last.rjust(WIDTH - len(state.first)), style="dim")
    grid.add_row("", "", axis)
    return grid


def _batches(batches: Batches) -> RenderableType:
    totals = tuple(bar.plan + bar.job + bar.commit for bar in batches.bars)
    line = Text()
    for bar, tick in zip(batches.bars, spark((*totals, 1.0), len(totals) + 1), strict=False):
        line.append(tick, style="yellow" if bar.late else "cyan")
    note = f"{batches.first} to {batches.last}; full height {batches.top}{f'; {batches.due}' if batches.due else ''}"
    return _titled("Batch time", line, _text(note, style="dim"))


def _said(said: Sequence[Said]) -> RenderableType:
    grid = Grid(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    for entry in said:
        grid.add_row(_text(f"batch {entry.batch}", style="dim"), _text(entry.says))
    return grid
