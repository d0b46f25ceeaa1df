"""DuckDB as the evaluator of SQL predicates over Arrow columns, with no way out to files or the network."""

# [!] Annotations as text: threads that outlive the interpreter may hold these functions, and so DuckDB's types.
from __future__ import annotations

import atexit
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

import duckdb
import numpy as np
import pyarrow as pa

from watersmeet.arrays import Floats, Ints
from watersmeet.errors import DefinitionError, PredicateError
from watersmeet.formatting import shorten, value_at
from watersmeet.limits import limits
from watersmeet.predicate.macros import PRELUDE
from watersmeet.predicate.model import Bound, Conjunct, Dialect
from watersmeet.predicate.types import spark_name
from watersmeet.probe.evaluators.guard import Guard
from watersmeet.state.store.budget import address_space

Table = Mapping[str, pa.Array]
Ends = Floats | None

MEMORY = 256_000_000
"""The bytes it may use; beyond that it writes to disk."""
LEAST_MEMORY = 32_000_000
VALUE_ERRORS = (duckdb.DataError, duckdb.ProgrammingError, duckdb.NotSupportedError)
"""The errors of DuckDB for values that an expression can't handle; all others are not the expression's fault."""


class Duck:
    """One connection of one worker process; not shared between threads.

    Args:
        dialect: The session's settings.
        folder: A private folder for what doesn't fit in memory; None for a folder of DuckDB's choice.
        untrusted: Whether somebody else may have written expressions and settings: each must be one that Watersmeet may
            have written (`guard.py`), and nothing is put on disk.

    Raises:
        DefinitionError: If the time zone does not exist.
    """

    def __init__(self, dialect: Dialect, folder: Path | None = None, untrusted: bool = False) -> None:
        """Open a DuckDB in memory that reaches no files but spills to `folder`; if untrusted, it checks expressions.

        Creates the folder. A weak reference stays, by which the connection is closed before the interpreter ends.
        """
        # No threads of its own: each would take 64 MB of address space, and there is one process for each core.
        config: dict[str, str | int] = {"threads": 1, "async_threads": 0, "memory_limit": f"{_memory()}B"}
        # [!] From the first statement on: nothing that the connection runs can reach a file or load an extension.
        config["enable_external_access"] = "false"
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        if folder is not None or untrusted:
            config["temp_directory"] = str(folder or "")
        self._connection = duckdb.connect(config={**config})
        _ducks.add(self)
        self._connection.execute("SET enable_progress_bar = false")
        self._set_zone(dialect.time_zone)
        self._connection.execute("SET lock_configuration = true")
        for statement in PRELUDE:
            self._connection.execute(statement)
        self._guard = Guard() if untrusted else None

    def _set_zone(self, name: str) -> None:
        """Set the time zone of the connection and its cursors; raises DefinitionError if DuckDB doesn't know it."""
        try:
            # [!] GLOBAL: cursors begin with the settings of the database, not with those of this connection.
            self._connection.execute("SET GLOBAL TimeZone = ?", [name])
        except VALUE_ERRORS:
            raise DefinitionError(
                f"The session's time zone is {shorten(name)}, and there is none of that name; expected one of the time "
                "zone database, such as Europe/Berlin."
            ) from None

    def _admit(self, expressions: Iterable[str]) -> None:
        """Raise a StateError if an expression may not be run here."""
        if self._guard is not None:
            self._guard.admit(self._connection, expressions)

    def release(self) -> None:
        """Close the connection for good."""
        del self._connection

    def filter(self, columns: Table, conditions: Sequence[str], rows: int) -> Ints:
        """Return the positions of the rows for which every condition is TRUE.

        Raises one of VALUE_ERRORS if a condition raises for any row.
        """
        self._admit(conditions)
        with self._as_table(columns, rows) as connection:
            positions = connection.execute(f"SELECT i FROM t WHERE {_conjunction(conditions)}").fetchnumpy()["i"]
        return np.asarray(positions, dtype=np.int64)

    def attempt(self, columns: Table, conditions: Sequence[str], rows: int) -> Ints | None:
        """Return the positions of the rows for which every condition is TRUE; None if one raises for any row."""
        try:
            return self.filter(columns, conditions, rows)
        except VALUE_ERRORS:
            return None

    def numbers(self, columns: Table, expressions: Sequence[str], rows: int) -> list[Floats] | None:
        """Return each expression's value per row as float64, NULL as NaN; None if one raises for any row."""
        self._admit(expressions)
        names = [f"e{at}" for at in range(len(expressions))]
        select = ", ".join(f"CAST({sql} AS DOUBLE) AS {name}" for sql, name in zip(expressions, names, strict=True))
        try:
            with self._as_table(columns, rows) as connection:
                values = connection.execute(f"SELECT {select} FROM t").fetchnumpy()
        except VALUE_ERRORS:
            return None
        return [np.ma.filled(np.ma.asarray(values[name], dtype=np.float64), np.nan) for name in names]

    def ends(
        self, columns: Table, bounds: Sequence[Bound], rows: int, more: Sequence[str] = ()
    ) -> tuple[list[tuple[Ends, Ends]], list[Floats]] | None:
        """Return the ends of each bound per row, None for a missing end, and the values of more expressions.

        Return None if anything raises for any row.
        """
        expressions = [end for bound in bounds for end in (bound.low, bound.high) if end is not None]
        numbers = self.numbers(columns, [*expressions, *more], rows) if expressions or more else []
        if numbers is None:
            return None
        values = iter(numbers)
        ends = [
            (None if bound.low is None else next(values), None if bound.high is None else next(values))
            for bound in bounds
        ]
        return ends, list(values)

    def values(self, columns: Table, expression: str, rows: int) -> pa.Array:
        """Return an expression's value per row, times with a zone in UTC; raises one of VALUE_ERRORS if it raises."""
        self._admit([expression])
        with self._as_table(columns, rows) as connection:
            table = connection.sql(f"SELECT {expression} AS e FROM t").to_arrow_table()
        values = table.column("e").combine_chunks()
        # A predicate sees one zone, whatever the session's is, for columns and expressions alike.
        return values.cast(in_utc(values.type))

    def cast(self, text: str, kind: str) -> pa.Scalar:
        """Return the value of an SQL type that a text stands for, in the session's time zone.

        Raises:
            ValueError: If it stands for none.
        """
        try:
            return self.values({"c": pa.array([text])}, f"CAST(c AS {kind})", 1)[0]
        except VALUE_ERRORS as error:
            raise ValueError(_reason(error)) from None

    def join(
        self, left: Table, right: Table, conditions: Sequence[str], sizes: tuple[int, int]
    ) -> Iterator[tuple[Ints, Ints]]:
        """Yield the pairs of rows for which every condition is TRUE, block by block.

        Args:
            left: The columns on the left.
            right: Those on the right.
            conditions: The conditions; there is at least one.
            sizes: How many rows the two have.

        Raises:
            PredicateError: If a condition raises for any pair.
        """
        self._admit(conditions)
        # [!] A cursor of its own: the consumer of a block, such as a later hop, uses the connection while this result
        # is open.
        with self._connection.cursor() as cursor:
            _register(cursor, "l", left, "i", sizes[0])
            _register(cursor, "r", right, "j", sizes[1])
            for block in _blocks(cursor, f"SELECT i, j FROM l, r WHERE {_conjunction(conditions)}"):
                yield block.column(0).to_numpy(), block.column(1).to_numpy()

    def find_unmatched(self, left: Table, right: Table, conditions: Sequence[str], sizes: tuple[int, int]) -> Ints:
        """Return the rows on the left for which no row on the right makes every condition TRUE.

        Raises one of VALUE_ERRORS if a condition raises. `sizes` are the numbers of rows on both sides.
        """
        self._admit(conditions)
        if not sizes[0] or not sizes[1]:
            return np.arange(sizes[0])
        with self._connection.cursor() as cursor:
            _register(cursor, "l", left, "i", sizes[0])
            _register(cursor, "r", right, "j", sizes[1])
            query = f"SELECT i FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE {_conjunction(conditions)}) ORDER BY i"
            return np.asarray(cursor.execute(query).fetchnumpy()["i"], dtype=np.int64)

    def check(self, columns: Table, conjunct: Conjunct, rows: int, names: Mapping[str, str]) -> Ints:
        """Return the positions of the rows for which a conjunct that may raise is TRUE.

        Args:
            columns: The columns that it reads.
            conjunct: The conjunct.
            rows: How many rows there are.
            names: The columns that an error shows, with the names that users know.

        Raises:
            PredicateError: If it raises for a row; the message names the conjunct and the row's values.
        """
        try:
            return self.filter(columns, [conjunct.condition], rows)
        except VALUE_ERRORS as error:
            at = self._find_first_failing(columns, conjunct.condition, 0, rows)
            row = ", ".join(
                f"{names[name]} = {shorten(value_at(values, at))} ({spark_name(values.type)})"
                for name, values in columns.items()
                if name in names
            )
            raise PredicateError(f"`{conjunct.text}` raised {_reason(error)}{f' for {row}' if row else ''}.") from None

    def find_denied(self, columns: Table, condition: str, rows: int) -> Ints:
        """Return the positions of the rows for which a condition neither is TRUE nor raises.

        It searches by halves, so it is meant for the rare block in which some rows raise.
        """
        positions = self.attempt(columns, [condition], rows)
        if positions is not None:
            return np.setdiff1d(np.arange(rows), positions)
        if rows == 1:
            return np.zeros(0, dtype=np.int64)
        half = rows // 2
        first = {name: values.slice(0, half) for name, values in columns.items()}
        second = {name: values.slice(half) for name, values in columns.items()}
        return np.append(
            self.find_denied(first, condition, half), self.find_denied(second, condition, rows - half) + half
        )

    def _find_first_failing(self, columns: Table, sql: str, start: int, end: int) -> int:
        """Return the first row for which a condition raises, by bisection; rows `start` to `end` must hold one."""
        while end - start > 1:
            middle = (start + end) // 2
            half = {name: values.slice(start, middle - start) for name, values in columns.items()}
            try:
                self.filter(half, [sql], middle - start)
                start = middle
            except VALUE_ERRORS:
                end = middle
        return start

    @contextmanager
    def _as_table(self, columns: Table, rows: int) -> Iterator[duckdb.DuckDBPyConnection]:
        """Context manager: the connection with the columns as table `t`, dropped at the end, as they may be mapped."""
        _register(self._connection, "t", columns, "i", rows)
        try:
            yield self._connection
        finally:
            self._connection.unregister("t")


def _memory() -> int:
    """Return how many bytes DuckDB may use: at most a quarter of the free address space, if that is limited."""
    limited = address_space()
    return MEMORY if limited is None else min(MEMORY, max(LEAST_MEMORY, limited.room() // 4))


def in_utc(kind: pa.DataType) -> pa.DataType:
    """Return a type with all timestamps that have a zone, nested ones too, in UTC."""
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
    """Yield the blocks of a result; raises PredicateError if computing it raises.

    Errors of the consumer are not mistaken for errors of the query.
    """
    reader = None
    while True:
        try:
            # [!] Not execute().to_arrow_reader(): that gathers the whole result before the first block.
            reader = reader or cursor.sql(query).to_arrow_reader(limits().stream_rows)
            block = reader.read_next_batch()
        except StopIteration:
            return
        except (*VALUE_ERRORS, pa.ArrowException) as error:
            raise PredicateError(f"`where` raised {_reason(error)}; the batch was not written.") from None
        yield block


def _conjunction(conditions: Sequence[str]) -> str:
    return " AND ".join(f"({condition})" for condition in conditions)


def _reason(error: Exception) -> str:
    return str(error).split("\n")[0].removeprefix("Invalid Input Error: ").rstrip(".")


_ducks: WeakSet[Duck] = WeakSet()


@atexit.register
def release_all() -> None:
    """Close all connections before the interpreter shuts down.

    [!] Spark's threads outlive it, and what they refer to is never freed: if connections were among it, DuckDB would
    print a page about leaks.
    """
    while _ducks:
        _ducks.pop().release()
