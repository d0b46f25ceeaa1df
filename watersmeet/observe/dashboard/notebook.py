"""What a notebook shows of a join, a running query and its progress: small tables and courses, as text and as HTML.

HTML of a notebook has no place for scripts or styles of its own; all that comes from data is escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from watersmeet.arguments import format_duration
from watersmeet.formatting import render_table
from watersmeet.observe.dashboard.terminal import spark
from watersmeet.observe.dashboard.view import Cell, Figure, Series, Table, View
from watersmeet.observe.dashboard.words import NOTHING, count, milliseconds, plain
from watersmeet.predicate.type_names import spark_name
from watersmeet.query.query import Query

LAST = 10
"""Batches that are listed."""
COURSE = 60
"""Batches of which the course is drawn."""


class Progress(list[Mapping[str, Any]]):
    """What each of the last batches did, oldest first: a list of dicts, which shows itself as a table."""

    def __repr__(self) -> str:
        found = batches(self)
        rows = [[cell.text for cell in row] for row in found.rows]
        course = [f"{name}: {spark(series, COURSE)}" for name, series in courses(self).items()]
        return "\n".join([*course, *render_table(found.columns, rows), found.note]) if self else "no batch yet"

    def _repr_html_(self) -> str:
        drawn = "".join(f"<td>{escape(name)} {svg(series)}</td>" for name, series in courses(self).items())
        return f"<table><tr>{drawn}</tr></table>{html(batches(self))}" if self else "no batch yet"


def batches(progress: Sequence[Mapping[str, Any]]) -> Table:
    """Return the last batches, a row each."""
    shown = progress[-LAST:]
    rest = f"the last {len(shown)} of {count(len(progress))} batches; each is a dict with more: progress[-1]"
    return Table(
        ("batch", "offered", "rows in", "late", "results", "state", "took", "watermark", "held by"),
        tuple(
            tuple(
                map(
                    plain,
                    (
                        f"{found['batchId']}{' (round)' if found.get('round') else ''}",
                        str(found["timestamp"]),
                        count(sum(found["inputRows"].values())),
                        count(found["lateRows"]),
                        count(found["outputRows"]),
                        count(found["stateRows"]),
                        milliseconds(found["durationMs"]["total"]),
                        str(found["watermark"] or NOTHING),
                        str(found["heldBackBy"] or NOTHING),
                    ),
                )
            )
            for found in shown
        ),
        texts=0,
        note=rest if shown else "",
    )


def courses(progress: Sequence[Mapping[str, Any]]) -> dict[str, Series]:
    """Return the courses of rows, results and batch times."""
    shown = progress[-COURSE:]
    return {
        "rows in": tuple(sum(found["inputRows"].values()) for found in shown),
        "results": tuple(found["outputRows"] for found in shown),
        "batch time": tuple(found["durationMs"]["total"] for found in shown),
    }


def svg(series: Series, width: int = 120, height: int = 24) -> str:
    """Return a course as a small picture; None breaks the line.

    >>> svg((1.0, 2.0), 10, 10)[:60]
    '<svg width="10" height="10" viewBox="0 0 10 10" style="verti'
    """
    known = [value for value in series if value is not None]
    top, step = max(known, default=0) or 1, width / max(1, len(series) - 1)
    path, pen = [], "M"
    for at, value in enumerate(series):
        if value is not None:
            path.append(f"{pen}{at * step:.1f} {height - 1 - (height - 2) * value / top:.1f}")
        pen = "M" if value is None else "L"
    shape = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    style = "vertical-align:middle;fill:none;stroke:currentColor"
    return f'<svg {shape} style="{style}"><path d="{"".join(path)}"/></svg>'


def html(table: Table) -> str:
    """Return a table as a notebook shows it."""
    sides = ["left" if at < table.texts else "right" for at in range(len(table.columns))]
    head = "".join(_field("th", side, escape(name)) for side, name in zip(sides, table.columns, strict=True))
    rows = "".join(
        f"<tr>{''.join(_field('td', side, _cell(cell)) for side, cell in zip(sides, row, strict=True))}</tr>"
        for row in table.rows
    )
    note = f"<div>{escape(table.note)}</div>" if table.note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{note}"


def _field(tag: str, side: str, inside: str) -> str:
    return f'<{tag} style="text-align:{side};font-variant-numeric:tabular-nums">{inside}</{tag}>'


def _cell(cell: Cell) -> str:
    return svg(cell.series, 80, 16) if cell.series else escape(cell.text)


def _figure(figure: Figure) -> str:
    parts = [escape(figure.label), f"<b>{escape(figure.value)}</b>", escape(figure.note), svg(figure.series)]
    return f'<td style="text-align:left">{"<br>".join(parts)}</td>'


def small(view: View) -> str:
    """Return the upper part of a view: the verdict, the numbers to watch, the streams."""
    says = " ".join(view.verdict.says)
    head = f"<div><b>{escape(view.verdict.title)}</b> {escape(says)}</div><div>{escape(view.facts)}</div>"
    figures = f"<table><tr>{''.join(map(_figure, view.figures))}</tr></table>" if view.figures else ""
    joins = (f"<div>{escape(join.watermark)}</div>{html(join.streams)}" for join in view.joins)
    return f"{head}{figures}{''.join(joins)}"


def definition(facts: Iterable[tuple[str, str]], streams: Table) -> str:
    """Return a join that does not run, as HTML: what it is, and its streams."""
    told = "".join(f"<div><b>{escape(name)}</b> <code>{escape(text)}</code></div>" for name, text in facts if text)
    return f"{told}{html(streams)}"


def streams_of(query: Query) -> Table:
    """Return the streams of a join: what each is, and how long its tuples stay."""
    return Table(
        ("stream", "window", "delay", "time", "columns"),
        tuple(
            (
                plain(stream.name),
                plain(query.kind_of(at)),
                plain(NOTHING if stream.table else format_duration(stream.delay)),
                plain(NOTHING if stream.table else stream.schema.field(stream.time).name),
                plain(", ".join(f"{field.name} {spark_name(field.type)}" for field in stream.columns)),
            )
            for at, stream in enumerate(query.streams)
        ),
        texts=5,
    )
