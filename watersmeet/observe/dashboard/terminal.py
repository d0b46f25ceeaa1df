"""Draws the view in a terminal."""

from collections.abc import Iterator, Sequence
from math import ceil

from rich import box
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from watersmeet.formatting import sanitize
from watersmeet.observe.dashboard.dashboard_view import (
    BatchChart,
    DashboardView,
    Figure,
    FunnelHop,
    JoinView,
    Lane,
    Level,
    LogEntry,
    Series,
    StateMap,
    Table,
    TableCell,
)

STYLES: dict[Level, str] = {"": "", "good": "green", "watch": "yellow", "bad": "bold red", "off": "dim"}
TICKS = "▁▂▃▄▅▆▇█"
SHADES = " ░▒▓█"
MAP_WIDTH = 60
"""The width of the map of state, where there is room."""
LEAST_MAP_WIDTH = 10
"""Its least width."""
GAP = 2
"""Characters between columns."""
WIDE = 100
"""The width from which on bars are longer."""
SPARK = 20


def screen(view: DashboardView, width: int) -> RenderableType:
    """Return the view as rich prints it, for a terminal of some width."""
    return Group(*_render_parts(view, width))


def _render_parts(view: DashboardView, width: int) -> Iterator[RenderableType]:
    """Yield the parts of the view from top to bottom; those without content are left out."""
    yield Text.assemble(_text(view.title, "bold"), "  ", _text(view.facts, "dim"))
    heading = Text.assemble((f"● {view.verdict.title}", f"{STYLES[view.verdict.level]} bold"))
    for message in view.verdict.messages:
        heading.append(_text(f"  {message}"))
    yield heading
    if view.figures:
        yield _render_figures(view.figures)
    for join in view.joins:
        yield from _render_join(join, width)
    if view.batches.bars:
        yield _render_batches(view.batches)
    if view.owed_results.rows:
        yield _add_title("Spilled and owed", _render_table(view.owed_results, width))
    if view.decisions:
        yield _add_title("Decisions, the last first", _entry_table(view.decisions))
    if view.refused_rows.rows:
        yield _add_title("Rows that were not joined, samples", _render_table(view.refused_rows, width))
    yield _text(f"{view.place} · read at {view.now}, all times UTC", style="dim")


def _text(text: str, style: str = "") -> Text:
    return Text(sanitize(text, ""), style)


def _add_title(title: str, *parts: RenderableType) -> RenderableType:
    return Padding(Group(_text(title, style="bold cyan"), *parts), (1, 0, 0, 0))


def spark(series: Series, width: int = SPARK) -> str:
    """Return the last `width` values of a trend as blocks, relative to the largest; None is a space.

    >>> spark((0, 1, None, 2))
    '▁▅ █'
    """
    values = series[-width:]
    top = max((value for value in values if value is not None and value > 0), default=1)
    return "".join(" " if value is None else TICKS[max(0, round(value / top * (len(TICKS) - 1)))] for value in values)


def _render_figures(figures: Sequence[Figure]) -> RenderableType:
    """Return the key figures side by side, each with its label, note and sparkline."""
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


def _render_join(join: JoinView, width: int) -> Iterator[RenderableType]:
    """Yield the parts that show one join: streams, funnel, predicates, state and nodes."""
    name = f" (join '{join.name}')" if join.name else ""
    yield _add_title(
        f"Streams, last batch{name}",
        _text(" ".join(join.where.split()), style="dim"),
        _text(join.watermark),
        _render_table(join.streams, width),
    )
    if join.funnel:
        heading = f"Where pairs go, last batch; bars on a logarithmic scale{name}"
        yield _add_title(heading, *(_render_hop(hop, width) for hop in join.funnel))
    if join.predicates.rows:
        yield _add_title(f"Python predicates, last batch{name}", _render_table(join.predicates, width))
    if join.state.lanes:
        yield _add_title(f"State along event time; the denser, the more rows{name}", _render_map(join.state, width))
        yield _add_title("Leaves state next", _render_table(join.state.next_to_leave, width))
    if join.nodes.rows:
        yield _add_title(f"Nodes, last batch{name}", _render_table(join.nodes, width))


def _render_table(table: Table, width: int) -> RenderableType:
    """Return a table; columns that don't fit continue below, except that tables of words alone are wrapped."""
    rows = [[_render_cell(cell) for cell in row] for row in table.rows]
    widths = [max(len(name), *(row[at].cell_len for row in rows), 0) + GAP for at, name in enumerate(table.columns)]
    parts = [[*range(len(widths))]] if table.text_columns >= len(widths) else bands(widths, width + GAP)
    grids = (_build_grid(table, rows, columns) for columns in parts)
    return Group(*grids, *([_text(table.note)] if table.note else []))


def bands(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the columns that stand side by side: the first, and about as many others in each part.

    >>> bands((5, 10, 10, 10), 40), bands((5, 10, 10, 10, 10), 37)
    ([[0, 1, 2, 3]], [[0, 1, 2], [0, 3, 4]])
    """
    fewest = len(_fill_rows(widths, room))
    return next(columns for width in range(room + 1) if len(columns := _fill_rows(widths, width)) == fewest)


def _fill_rows(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return columns side by side: the first, and as many others as fit."""
    groups = [[0]]
    for at in range(1, len(widths)):
        if len(groups[-1]) > 1 and sum(widths[column] for column in groups[-1]) + widths[at] > room:
            groups.append([0])
        groups[-1].append(at)
    return groups


def _build_grid(table: Table, rows: Sequence[Sequence[Text]], columns: Sequence[int]) -> Grid:
    """Return some columns of a table, those of numbers aligned to the right."""
    grid = Grid(box=None, pad_edge=False, header_style="dim", padding=(0, GAP, 0, 0))
    for at in columns:
        grid.add_column(table.columns[at], justify="left" if at < table.text_columns else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(row[at] for at in columns))
    return grid


def _render_cell(cell: TableCell) -> Text:
    text = _text(spark(cell.series, 12), style="cyan") if cell.series else _text(cell.text, style=STYLES[cell.level])
    if cell.share is not None:  # before the number, or numbers would not be flush
        return Text.assemble((_render_bar(cell.share, 6), "cyan"), " ", text)
    return text


def _render_bar(share: float, width: int) -> str:
    return ("█" * round(share * width) or "▏").ljust(width)


def _render_hop(hop: FunnelHop, width: int) -> RenderableType:
    """Return a hop of the funnel: for each step a bar, a count and what it is; near-misses follow their step."""
    bar, digits = 24 if width >= WIDE else 8, max(len(step.count) for step in hop.steps)
    room = width - bar - digits - 2 * GAP
    grid = Grid.grid(padding=(0, GAP, 0, 0))
    grid.add_column(width=bar)
    grid.add_column(width=digits, justify="right")
    grid.add_column(overflow="fold")
    for step in hop.steps:
        between = "  " if len(step.label) + 2 + len(step.note) <= room else "\n"
        text = Text.assemble(_text(step.label), between if step.note else "", _text(step.note, "dim"))
        text = Text("\n").join([text, *(_text(line, "dim") for line in step.near_misses)])
        grid.add_row(Text(_render_bar(step.share, bar), style="cyan"), _text(step.count), text)
    return Group(_text(hop.title, style="bold"), grid)


def _render_map(state: StateMap, width: int) -> RenderableType:
    """Return the map of state: a line for each stream and node, and the times of both ends below."""
    names = (max(len(text) for text in texts) for texts in zip(*((x.stream, x.node) for x in state.lanes), strict=True))
    size = min(MAP_WIDTH, max(LEAST_MAP_WIDTH, width - sum(names) - 2 * GAP))
    grid = Grid.grid(padding=(0, GAP, 0, 0))
    stream = ""
    for lane in state.lanes:
        name = _text(lane.stream if lane.stream != stream else "")
        grid.add_row(name, _text(lane.node, style="dim"), _render_lane(lane, state.watermark, size))
        stream = lane.stream
    grid.add_row("", "", _text(state.first + state.last.rjust(size - len(state.first)), style="dim"))
    return grid


def _render_lane(lane: Lane, watermark: float | None, size: int) -> Text:
    """Return the state of one stream on one node as `size` characters along time, with a line at the watermark."""
    weights = [0.0] * size
    for block in lane.blocks:
        first, last = (min(size - 1, int(at * size)) for at in (block.start, block.end))
        for at in range(first, last + 1):
            weights[at] = max(weights[at], block.weight, 0.01)
    text = _text("".join(SHADES[ceil(weight * (len(SHADES) - 1))] for weight in weights), style="cyan")
    if watermark is None:
        return text
    at = min(size - 1, int(watermark * size))
    return Text.assemble(text[:at], ("│", "yellow"), text[at + 1 :])


def _render_batches(batches: BatchChart) -> RenderableType:
    """Return the durations of the last batches as a sparkline; those that outlasted the trigger stand out."""
    totals = tuple(bar.plan + bar.job + bar.commit for bar in batches.bars)
    line = Text()
    for bar, tick in zip(batches.bars, spark((*totals, 1.0), len(totals) + 1), strict=False):
        line.append(tick, style="yellow" if bar.is_late else "cyan")
    trigger = f"; {batches.trigger_text}" if batches.trigger_text else ""
    note = f"{batches.first} to {batches.last}; from 0 to {batches.top}{trigger}"
    return _add_title("Batch time", line, _text(note, style="dim"))


def _entry_table(entries: Sequence[LogEntry]) -> RenderableType:
    grid = Grid(box=box.SIMPLE, show_header=False, show_edge=False, pad_edge=False)
    for entry in entries:
        grid.add_row(_text(f"batch {entry.batch}", style="dim"), _text(entry.message))
    return grid
