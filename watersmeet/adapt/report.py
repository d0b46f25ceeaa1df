"""Advice as plain text: what was measured, and a table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HEADINGS = (
    *("rate", "tuples/s", "results/s", "strategy", "nodes", "at least", "batch s", "fastest"),
    *("holds tuples/s", "and results/s", "state rows", "state", "network/s"),
)
UNITS = ("B", "kB", "MB", "GB", "TB")


def report(measured: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], title: str, notes: Sequence[str]) -> str:
    """Return what was measured, the rows as a table, and what to mind."""
    lines = [*_measured(measured), "", title, *table(HEADINGS, [_cells(row) for row in rows])]
    return "\n".join([*lines, *(f"! {note}" for note in notes)])


def _measured(measured: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"Measured on {measured['tuples']:,} tuples over {measured['seconds']:.3g} s of event time: "
        f"{duration(measured['pairSeconds'])} a pair, {measured['rowBytes']:.0f} bytes a tuple"
    )
    for name, stream in measured["streams"].items():
        if "rows" in stream:
            yield f"  {name}: a table of {stream['rows']:,} rows"
            continue
        order = ", then ".join(f"{to} ({part:.2%} match)" for to, part in stream["matching"].items())
        given = " as given" if stream["given"] else ""
        yield f"  {name}: {figure(stream['tuplesPerSecond'])} tuples/s{given}, probe {order}"
    for name, cost in measured["predicates"].items():
        each = cost["ms"] / 1000 / cost["pairs"] if cost["pairs"] else 0.0
        part = cost["matches"] / cost["pairs"] if cost["pairs"] else 0.0
        yield f"  {name}(): {duration(each)} a call, {part:.2%} match"


def _cells(row: Mapping[str, Any]) -> list[str]:
    numbers = [figure(row[key]) for key in ("tuplesPerSecond", "resultsPerSecond")]
    most = [figure(row[key]) for key in ("mostTuplesPerSecond", "mostResultsPerSecond", "stateRows")]
    bytes_ = [size(row[key]) for key in ("stateBytes", "networkBytesPerSecond")]
    nodes = [str(row["nodes"]), str(row["nodesNeeded"] or "-"), figure(row["batchSeconds"])]
    fastest = f"{figure(row['fastestSeconds'])} on {row['fastestNodes']}"
    return [f"{row['factor']}x", *numbers, row["strategy"], *nodes, fastest, *most, *bytes_]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, columns flush right.

    >>> table(["n", "name"], [["1", "a"], ["20", "b"]])
    [' n  name', ' 1     a', '20     b']
    """
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (headings, *rows)]


def figure(value: float) -> str:
    """Return a number to three digits.

    >>> figure(0.01234), figure(123456)
    ('0.0123', '123,000')
    """
    return f"{value:.3g}" if value < 1000 else f"{float(f'{value:.3g}'):,.0f}"


def size(value: float) -> str:
    """Return a number of bytes.

    >>> size(1234567)
    '1.23 MB'
    """
    at = 0
    while value >= 1000 and at < len(UNITS) - 1:
        value, at = value / 1000, at + 1
    return f"{figure(value)} {UNITS[at]}"


def duration(seconds: float) -> str:
    """Return a short time.

    >>> duration(0.0012)
    '1.2 ms'
    """
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
