"""What a notebook shows of a join, a running query and its progress: small tables and trends, as text and as HTML.

HTML of a notebook has no place for scripts or styles of its own; all that comes from data is escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from watersmeet.arguments import format_duration
from watersmeet.formatting import render_table as format_table
from watersmeet.observe.dashboard.checkpoint_reader import TREND_BATCHES
from watersmeet.observe.dashboard.dashboard_view import (
    NOTHING,
    DashboardView,
    Figure,
    Series,
    Table,
    TableCell,
    format_count,
    format_milliseconds,
    text_cell,
)
from watersmeet.observe.dashboard.terminal import spark
from watersmeet.predicate.types import spark_name
from watersmeet.query.query import Query

LAST = 10
"""Batches that are listed."""


class ProgressList(list[Mapping[str, Any]]):
    """The progress of the last batches, oldest first: a list of dicts that displays as a table."""

    def __repr__(self) -> str:
        table = batch_table(self)
        rows = [[cell.text for cell in row] for row in table.rows]
        trend_lines = [f"{name}: {spark(series, TREND_BATCHES)}" for name, series in trends(self).items()]
        return "\n".join([*trend_lines, *format_table(table.columns, rows), table.note]) if self else "no batch yet"

    def _repr_html_(self) -> str:
        cells = "".join(f"<td>{escape(name)} {render_trend(series)}</td>" for name, series in trends(self).items())
        return f"<table><tr>{cells}</tr></table>{render_table(batch_table(self))}" if self else "no batch yet"


def batch_table(progress: Sequence[Mapping[str, Any]]) -> Table:
    """Return the last `LAST` batches as a table, a row each, the newest last, with a note of how many there are.

    Args:
        progress: Watersmeet's progress, oldest first, as in `ProgressList`.
    """
    recent = progress[-LAST:]
    note = f"the last {len(recent)} of {format_count(len(progress))} batches; each is a dict with more: progress[-1]"
    return Table(
        ("batch", "offered", "rows in", "late", "results", "state", "took", "watermark", "held by"),
        tuple(
            tuple(
                map(
                    text_cell,
                    (
                        f"{entry['batchId']}{' (round)' if entry.get('round') else ''}",
                        str(entry["timestamp"]),
                        format_count(sum(entry["inputRows"].values())),
                        format_count(entry["lateRows"]),
                        format_count(entry["outputRows"]),
                        format_count(entry["stateRows"]),
                        format_milliseconds(entry["durationMs"]["total"]),
                        str(entry["watermark"] or NOTHING),
                        str(entry["heldBackBy"] or NOTHING),
                    ),
                )
            )
            for entry in recent
        ),
        text_columns=0,
        note=note if recent else "",
    )


def trends(progress: Sequence[Mapping[str, Any]]) -> dict[str, Series]:
    """Return the trends of rows, results and batch times."""
    recent = progress[-TREND_BATCHES:]
    return {
        "rows in": tuple(sum(entry["inputRows"].values()) for entry in recent),
        "results": tuple(entry["outputRows"] for entry in recent),
        "batch time": tuple(entry["durationMs"]["total"] for entry in recent),
    }


def render_trend(series: Series, width: int = 120, height: int = 24) -> str:
    """Return a trend as a small SVG picture, its size in pixels; None breaks the line.

    >>> render_trend((1.0, 2.0), 10, 10)[:60]
    '<svg width="10" height="10" viewBox="0 0 10 10" style="verti'
    """
    numbers = [value for value in series if value is not None]
    top, step = max(numbers, default=0) or 1, width / max(1, len(series) - 1)
    path, pen = [], "M"
    for at, value in enumerate(series):
        if value is not None:
            path.append(f"{pen}{at * step:.1f} {height - 1 - (height - 2) * value / top:.1f}")
        pen = "M" if value is None else "L"
    shape = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    style = "vertical-align:middle;fill:none;stroke:currentColor"
    return f'<svg {shape} style="{style}"><path d="{"".join(path)}"/></svg>'


def render_table(table: Table) -> str:
    """Return a table as HTML, its texts escaped: leading columns of text to the left, the others to the right.

    Its note is below. A trend is drawn in place of its text; levels and bars are left out.
    """
    sides = ["left" if at < table.text_columns else "right" for at in range(len(table.columns))]
    head = "".join(_field("th", side, escape(name)) for side, name in zip(sides, table.columns, strict=True))
    rows = "".join(
        f"<tr>{''.join(_field('td', side, _cell(cell)) for side, cell in zip(sides, row, strict=True))}</tr>"
        for row in table.rows
    )
    note = f"<div>{escape(table.note)}</div>" if table.note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{note}"


def _field(tag: str, side: str, inside: str) -> str:
    return f'<{tag} style="text-align:{side};font-variant-numeric:tabular-nums">{inside}</{tag}>'


def _cell(cell: TableCell) -> str:
    return render_trend(cell.series, 80, 16) if cell.series else escape(cell.text)


def _figure(figure: Figure) -> str:
    parts = [escape(figure.label), f"<b>{escape(figure.value)}</b>", escape(figure.note), render_trend(figure.series)]
    return f'<td style="text-align:left">{"<br>".join(parts)}</td>'


def render_summary(view: DashboardView) -> str:
    """Return the upper part of a view as HTML, its texts escaped: the verdict, the numbers to watch, the streams."""
    messages = " ".join(view.verdict.messages)
    head = f"<div><b>{escape(view.verdict.title)}</b> {escape(messages)}</div><div>{escape(view.facts)}</div>"
    figures = f"<table><tr>{''.join(map(_figure, view.figures))}</tr></table>" if view.figures else ""
    joins = (f"<div>{escape(join.watermark)}</div>{render_table(join.streams)}" for join in view.joins)
    return f"{head}{figures}{''.join(joins)}"


def render_definition(facts: Iterable[tuple[str, str]], streams: Table) -> str:
    """Return a join that does not run as HTML: facts about it, and its streams."""
    facts_html = "".join(
        f"<div><b>{escape(name)}</b> <code>{escape(text)}</code></div>" for name, text in facts if text
    )
    return f"{facts_html}{render_table(streams)}"


def stream_table(query: Query) -> Table:
    """Return the streams of a join as a table, with windows, delays and columns."""
    return Table(
        ("stream", "window", "delay", "time", "columns"),
        tuple(
            (
                text_cell(stream.name),
                text_cell(query.kind_of(at)),
                text_cell(NOTHING if stream.table else format_duration(stream.delay)),
                text_cell(NOTHING if stream.table else stream.schema.field(stream.time).name),
                text_cell(", ".join(f"{field.name} {spark_name(field.type)}" for field in stream.columns)),
            )
            for at, stream in enumerate(query.streams)
        ),
        text_columns=5,
    )
