"""DuckDB as the evaluator of SQL predicates over Arrow columns, with no way out to files or the network."""

# [!] Annotations as text: threads that outlive the interpreter may hold these functions, and would hold DuckDB's types.
from __future__ import annotations

import atexit
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.errors import DefinitionError, PredicateError
from watersmeet.formatting import shorten, value_at
from watersmeet.limits import limits
from watersmeet.predicate.macros import PRELUDE
from watersmeet.predicate.model import Bound, Conjunct, Dialect
from watersmeet.predicate.type_names import spark_name
from watersmeet.probe.evaluators.guard import Guard
from watersmeet.state.store.budget import space

Table = Mapping[str, pa.Array]
Ends = NDArray[np.float64] | None

MEMORY = 256_000_000
"""What it may use, in bytes; beyond that it writes to disk."""
LEAST_MEMORY = 32_000_000
RAISED = (duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError)
"""What DuckDB says of values that an expression has no answer for; all else is no fault of an expression."""


class Duck:
    """One connection of one worker process; not shared between threads.

    Args:
        dialect: The session's settings.
        folder: Where DuckDB puts what it has no memory for, nobody else's; None for a folder of its choice.
        guarded: Whether expressions and settings are somebody else's: each must be one that Watersmeet may have
            written (`guard.py`), and nothing is put on disk.

    Raises:
        DefinitionError: If there is no such time zone.
    """

    def __init__(self, dialect: Dialect, folder: Path | None = None, guarded: bool = False) -> None:
        # No threads of its own: each would take 64 MB of address space, and there is one process for each core.
        config: dict[str, str | int] = {"threads": 1, "async_threads": 0, "memory_limit": f"{_memory()}B"}
        # [!] From the first statement on: nothing that the connection runs can reach a file or load an extension.
        config["enable_external_access"] = "false"
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        if folder is not None or guarded:
            config["temp_directory"] = str(folder or "")
        self._connection = duckdb.connect(config={**config})
        _ducks.add(self)
        self._connection.execute("SET enable_progress_bar = false")
        self._set_zone(dialect.time_zone)
        self._connection.execute("SET lock_configuration = true")
        for statement in PRELUDE:
            self._connection.execute(statement)
        self._guard = Guard() if guarded else None

    def _set_zone(self, name: str) -> None:
        try:
            # [!] GLOBAL: cursors begin with the settings of the database, not with those of this connection.
            self._connection.execute("SET GLOBAL TimeZone = ?", [name])
        except RAISED:
            raise DefinitionError(
                f"The session's time zone is {shorten(name)}, and there is none of that name; expected one of the time "
                "zone database, such as Europe/Berlin."
            ) from None

    def _admit(self, expressions: Iterable[str]) -> None:
        """Let expressions pass that may be run here; a StateError if one may not."""
        if self._guard is not None:
            self._guard.admit(self._connection, expressions)

    def release(self) -> None:
        """Let go of the connection, for good."""
        del self._connection

    def filter(self, columns: Table, conditions: Sequence[str], rows: int) -> Ints:
        """Return the positions of the rows for which every condition is TRUE."""
        self._admit(conditions)
        with self._asked(columns, rows) as connection:
            found = connection.execute(f"SELECT i FROM t WHERE {_all(conditions)}").fetchnumpy()["i"]
        return np.asarray(found, dtype=np.int64)

    def attempt(self, columns: Table, conditions: Sequence[str], rows: int) -> Ints | None:
        """Return the positions for which every condition is TRUE, or None if one raises for any of the rows."""
        try:
            return self.filter(columns, conditions, rows)
        except RAISED:
            return None

    def numbers(self, columns: Table, expressions: Sequence[str], rows: int) -> list[NDArray[np.float64]] | None:
        """Return each expression's value per row as float64, NULL as NaN; None if one raises for any of the rows."""
        self._admit(expressions)
        names = [f"e{at}" for at in range(len(expressions))]
        shown = ", ".join(f"CAST({sql} AS DOUBLE) AS {name}" for sql, name in zip(expressions, names, strict=True))
        try:
            with self._asked(columns, rows) as connection:
                values = connection.execute(f"SELECT {shown} FROM t").fetchnumpy()
        except RAISED:
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
        self._admit([expression])
        with self._asked(columns, rows) as connection:
            table = connection.sql(f"SELECT {expression} AS e FROM t").to_arrow_table()
        found = table.column("e").combine_chunks()
        # A predicate sees one zone, whatever the session's is, and whether it is given a column or an expression.
        return found.cast(in_utc(found.type))

    def cast(self, text: str, kind: str) -> pa.Scalar:
        """Return the value of a type of SQL that a text stands for, in the session's time zone.

        Raises:
            ValueError: If it stands for none.
        """
        try:
            return self.values({"c": pa.array([text])}, f"CAST(c AS {kind})", 1)[0]
        except RAISED as error:
            raise ValueError(_reason(error)) from None

    def join(
        self, left: Table, right: Table, conditions: Sequence[str], sizes: tuple[int, int]
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield the pairs of rows for which every condition is TRUE, block by block."""
        self._admit(conditions)
        # [!] A cursor of its own: what is done with a block, later hops among it, asks the connection other things
        # while this result is open.
        with self._connection.cursor() as cursor:
            _register(cursor, "l", left, "i", sizes[0])
            _register(cursor, "r", right, "j", sizes[1])
            for block in _blocks(cursor, f"SELECT i, j FROM l, r WHERE {_all(conditions)}"):
                yield block.column(0).to_numpy(), block.column(1).to_numpy()

    def unmatched(self, left: Table, right: Table, conditions: Sequence[str], sizes: tuple[int, int]) -> Ints:
        """Return the rows on the left for which no row on the right makes every condition TRUE."""
        self._admit(conditions)
        if not sizes[0] or not sizes[1]:
            return np.arange(sizes[0])
        with self._connection.cursor() as cursor:
            _register(cursor, "l", left, "i", sizes[0])
            _register(cursor, "r", right, "j", sizes[1])
            query = f"SELECT i FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE {_all(conditions)}) ORDER BY i"
            return np.asarray(cursor.execute(query).fetchnumpy()["i"], dtype=np.int64)

    def check(self, columns: Table, conjunct: Conjunct, rows: int, names: Mapping[str, str]) -> Ints:
        """Return the positions for which a conjunct that may raise is TRUE.

        Args:
            columns: What it reads.
            conjunct: The conjunct.
            rows: How many rows there are.
            names: The columns that an error is to show, by the names that people know.

        Raises:
            PredicateError: If it raises for a row; the message names the conjunct and the row's values.
        """
        try:
            return self.filter(columns, [conjunct.condition], rows)
        except RAISED as error:
            at = self._first_failing(columns, conjunct.condition, 0, rows)
            shown = ", ".join(
                f"{names[name]} = {shorten(value_at(values, at))} ({spark_name(values.type)})"
                for name, values in columns.items()
                if name in names
            )
            raise PredicateError(
                f"`{conjunct.text}` raised {_reason(error)}{f' for {shown}' if shown else ''}."
            ) from None

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
            except RAISED:
                end = middle
        return start

    @contextmanager
    def _asked(self, columns: Table, rows: int) -> Iterator[duckdb.DuckDBPyConnection]:
        """Give the connection with the columns as its table `t`, forgotten afterwards: they may be mapped files."""
        _register(self._connection, "t", columns, "i", rows)
        try:
            yield self._connection
        finally:
            self._connection.unregister("t")


def _memory() -> int:
    """Return how much DuckDB may use: no more than a quarter of the free address space, where that is limited."""
    limited = space()
    return MEMORY if limited is None else min(MEMORY, max(LEAST_MEMORY, limited.room() // 4))


def in_utc(kind: pa.DataType) -> pa.DataType:
    """Return a type with all timestamps that have a zone, those inside it too, in UTC."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(in_utc(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(in_utc(kind.key_type), in_utc(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(at).with_type(in_utc(kind.field(at).type)) for at in range(kind.num_fields)])
    return kind


def _register(connection: duckdb.DuckDBPyConnection, name: str, columns: Table, number: str, rows: int) -> None:
    table = pa.table({number: pa.array(np.arange(rows, dtype=np.int64)), **columns})
    connection.register(name, table)


def _blocks(cursor: duckdb.DuckDBPyConnection, query: str) -> Iterator[pa.RecordBatch]:
    """Yield the blocks of a result; an error of whoever takes them is not taken for one of the result."""
    reader = None
    while True:
        try:
            # [!] Not execute().to_arrow_reader(): that gathers the whole result before the first block.
            reader = reader or cursor.sql(query).to_arrow_reader(limits().stream_rows)
            block = reader.read_next_batch()
        except StopIteration:
            return
        except (*RAISED, pa.ArrowException) as error:
            raise PredicateError(f"`where` raised {_reason(error)}; the batch was not written.") from None
        yield block


def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(f"({condition})" for condition in conditions)


def _reason(error: Exception) -> str:
    return str(error).split("\n")[0].removeprefix("Invalid Input Error: ").rstrip(".")


_ducks: WeakSet[Duck] = WeakSet()


@atexit.register
def release_all() -> None:
    """Let go of all connections while the interpreter is whole.

    [!] Spark's threads outlive it, and what they refer to is never freed: were connections among it, DuckDB would print
    a page about leaks.
    """
    while _ducks:
        _ducks.pop().release()
