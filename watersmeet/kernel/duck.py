"""DuckDB as the evaluator of SQL predicates over Arrow columns, with no way out to files or the network."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import PredicateError
from watersmeet.predicate.macros import PRELUDE
from watersmeet.predicate.model import Bound, Conjunct, Dialect

Ints = NDArray[np.int64]
Table = Mapping[str, pa.Array]
Ends = NDArray[np.float64] | None

MEMORY = "256MB"
STREAM_ROWS = 1 << 16


class Duck:
    """One connection of one worker process; not shared between threads."""

    def __init__(self, dialect: Dialect) -> None:
        self._connection = duckdb.connect(config={"threads": 1, "memory_limit": MEMORY})
        settings = (f"SET TimeZone = '{dialect.time_zone}'", "SET enable_progress_bar = false")
        for statement in (*settings, *PRELUDE):
            self._connection.execute(statement)
        # Last, since neither can be undone: nothing the connection runs can reach a file or load an extension.
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def filter(self, columns: Table, conditions: Sequence[str], rows: int) -> Ints:
        """Return the positions of the rows for which every condition is TRUE."""
        self._register("t", columns, "i", rows)
        found = self._connection.execute(f"SELECT i FROM t WHERE {_all(conditions)}").fetchnumpy()["i"]
        return np.asarray(found, dtype=np.int64)

    def attempt(self, columns: Table, conditions: Sequence[str], rows: int) -> Ints | None:
        """Return the positions for which every condition is TRUE, or None if one raises for any of the rows."""
        try:
            return self.filter(columns, conditions, rows)
        except duckdb.Error:
            return None

    def numbers(self, columns: Table, expressions: Sequence[str], rows: int) -> list[NDArray[np.float64]] | None:
        """Return each expression's value per row as float64, NULL as NaN; None if one raises for any of the rows."""
        self._register("t", columns, "i", rows)
        names = [f"e{at}" for at in range(len(expressions))]
        shown = ", ".join(f"CAST({sql} AS DOUBLE) AS {name}" for sql, name in zip(expressions, names, strict=True))
        try:
            values = self._connection.execute(f"SELECT {shown} FROM t").fetchnumpy()
        except duckdb.Error:
            return None
        return [np.ma.filled(np.ma.asarray(values[name], dtype=np.float64), np.nan) for name in names]

    def ends(
        self, columns: Table, bounds: Sequence[Bound], rows: int, more: Sequence[str] = ()
    ) -> tuple[list[tuple[Ends, Ends]], list[NDArray[np.float64]]] | None:
        """Return the ends of each bound per row, None for one that it lacks, and the values of more expressions.

        None at all if one raises for any row.
        """
        given = [end for bound in bounds for end in (bound.low, bound.high) if end is not None]
        found = self.numbers(columns, [*given, *more], rows) if given or more else []
        if found is None:
            return None
        values = iter(found)
        ends = [
            (None if bound.low is None else next(values), None if bound.high is None else next(values))
            for bound in bounds
        ]
        return ends, list(values)

    def values(self, columns: Table, expression: str, rows: int) -> pa.Array:
        """Return an expression's value per row."""
        self._register("t", columns, "i", rows)
        table = self._connection.sql(f"SELECT {expression} AS e FROM t").to_arrow_table()
        return table.column("e").combine_chunks()

    def join(
        self, left: Table, right: Table, conditions: Sequence[str], sizes: tuple[int, int]
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield the pairs of rows for which every condition is TRUE, block by block."""
        self._register("l", left, "i", sizes[0])
        self._register("r", right, "j", sizes[1])
        # [!] Not execute().to_arrow_reader(): that gathers the whole result before the first block.
        relation = self._connection.sql(f"SELECT i, j FROM l, r WHERE {_all(conditions)}")
        try:
            for block in relation.to_arrow_reader(STREAM_ROWS):
                yield block.column(0).to_numpy(), block.column(1).to_numpy()
        except (duckdb.Error, pa.ArrowException) as error:
            raise PredicateError(f"`where` raised {_reason(error)}; the batch was not written.") from None

    def check(self, columns: Table, conjunct: Conjunct, rows: int, names: Mapping[str, str]) -> Ints:
        """Return the positions for which a conjunct that may raise is TRUE.

        Raises:
            PredicateError: If it raises for a row; the message names the conjunct and the row's values.
        """
        try:
            return self.filter(columns, [conjunct.condition], rows)
        except duckdb.Error as error:
            at = self._first_failing(columns, conjunct.condition, 0, rows)
            shown = ", ".join(
                f"{names.get(name, name)} = {_short(values[at].as_py())} ({values.type})"
                for name, values in columns.items()
            )
            raise PredicateError(f"`{conjunct.text}` raised {_reason(error)} for {shown}.") from None

    def denied(self, columns: Table, condition: str, rows: int) -> Ints:
        """Return the positions for which a condition plainly isn't TRUE; those for which it raises are not among them.

        It looks for these by halves, so it is for the rare block in which some raise.
        """
        found = self.attempt(columns, [condition], rows)
        if found is not None:
            return np.setdiff1d(np.arange(rows), found)
        if rows == 1:
            return np.zeros(0, dtype=np.int64)
        half = rows // 2
        first = {name: values.slice(0, half) for name, values in columns.items()}
        second = {name: values.slice(half) for name, values in columns.items()}
        return np.append(self.denied(first, condition, half), self.denied(second, condition, rows - half) + half)

    def _first_failing(self, columns: Table, sql: str, start: int, end: int) -> int:
        while end - start > 1:
            middle = (start + end) // 2
            half = {name: values.slice(start, middle - start) for name, values in columns.items()}
            try:
                self.filter(half, [sql], middle - start)
                start = middle
            except duckdb.Error:
                end = middle
        return start

    def _register(self, name: str, columns: Table, number: str, rows: int) -> None:
        table = pa.table({number: pa.array(np.arange(rows, dtype=np.int64)), **columns})
        self._connection.register(name, table)


def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(f"({condition})" for condition in conditions)


def _reason(error: Exception) -> str:
    return str(error).split("\n")[0].removeprefix("Invalid Input Error: ").rstrip(".")


def _short(value: Any, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
