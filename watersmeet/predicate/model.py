"""A parsed `where`: conjuncts, their columns, calls and bounds."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

if TYPE_CHECKING:
    from watersmeet.predicate.numeric import Number, NumericComparison
    from watersmeet.predicate.terms import Comparison, Term

Relation = Literal["", "<", "<=", ">", ">=", "=", "<>", "<=>", "BETWEEN"]
"""How a conjunct relates the values that it compares; empty if it is not a single comparison."""
Form = Literal["array", "pair", "matrix"]


@dataclass(frozen=True, slots=True, order=True)
class Column:
    """A column of a stream, by positions: `stream` among the join's streams, `field` among the stream's columns."""

    stream: int
    field: int

    @property
    def name(self) -> str:
        """The generated name of the column in DuckDB, which never sees user names."""
        return f"s{self.stream}_{self.field}"


@dataclass(frozen=True, slots=True)
class PythonPredicate:
    """A predicate written in Python; made by `watersmeet.predicate`.

    Attributes:
        name: How `where` calls it.
        function: The user's function.
        form: `array`: one row against an array of candidates, `f(x, ys) -> mask`; `pair`: scalars, `f(x, y) -> bool`;
            `matrix`: arrays on both sides, `f(X, Y) -> mask` of shape (len(X), len(Y)).
        nulls: Whether NULL arguments reach the function; otherwise its answer for them is NULL.
        arrow: Whether it wants Arrow arrays; otherwise NumPy arrays.
        symmetric: Whether it gives the same answer for (x, y) and (y, x).
    """

    name: str
    function: Callable[..., Any]
    form: Form = "array"
    nulls: bool = False
    arrow: bool = False
    symmetric: bool = False

    def __call__(self, *args: Any) -> Any:
        """Call the function itself, as users' tests do; with columns of PySpark's, return a column that calls it."""
        if any(type(arg).__module__.startswith("pyspark.sql") for arg in args):
            return import_module("watersmeet.spark.sql.column_writer").call_column(self.name, args)
        return self.function(*args)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a Python predicate: a DuckDB expression over columns of at most one stream.

    Attributes:
        sql: The expression; a bare column is its generated name.
        columns: The columns it reads; empty for a constant.
        text: As the user wrote it.
    """

    sql: str
    columns: tuple[Column, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a Python predicate inside a conjunct, whose SQL reads the answer as the column `name`."""

    name: str
    predicate: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of an operation: a DuckDB expression of type DOUBLE, and the columns it reads."""

    sql: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that raises beyond the width of its type, or a limit within which a bound holds.

    Attributes:
        sign: One of + - * abs, or `is` for its only part itself.
        parts: Its operands.
        limit: It can't raise while its result lies within [-limit, limit].
        scale: A factor of the result: dates are days, but their difference is in microseconds.
    """

    sign: str
    parts: "tuple[Operand | Operation, ...]"
    limit: float
    scale: float = 1.0

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The inputs at the leaves of the operation."""
        return tuple(o for part in self.parts for o in ((part,) if isinstance(part, Operand) else part.operands))


@dataclass(frozen=True, slots=True)
class Bound:
    """An access path of a conjunct: rows whose `column` lies outside [low, high] can't satisfy it.

    The rows inside are a superset; the conjunct itself is still tested on them.

    [!] A row that is skipped never raises. The bound must not be used where one of `operations` might.

    Attributes:
        column: The column to look up: a number, date, timestamp, boolean or text.
        low: DuckDB expression of type DOUBLE over columns of *other* streams, with a margin where it may round; or None
            for no lower bound.
        high: The upper bound, in the same form.
        columns: The columns that `low` and `high` read.
        operations: The operations that may overflow; their operands read other streams, or are `column` itself.
        conditional: Whether rows beyond the limits of `operations` may satisfy the conjunct outside [low, high]: then
            it can look up stored rows, whose values are known, but doesn't constrain rows to come.
        numeric: The ends, None for a missing one, if NumPy can compute them; else None.
    """

    column: Column
    low: str | None
    high: str | None
    columns: tuple[Column, ...]
    operations: tuple[Operation, ...] = ()
    conditional: bool = False
    numeric: "tuple[Number | None, Number | None] | None" = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class HiddenColumn:
    """A column that Spark computes from a stream's own columns at intake; no output shows it.

    Attributes:
        text: The expression, as the user wrote it.
        type: Its type.
        failed: Whether it flags the column before it: TRUE where computing that raised.
        moved: If it is a timestamp column of the stream plus a constant, that column's position and the microseconds.
        punctuation: Whether it holds punctuations from a frame of their own; it is NULL for tuples.
    """

    text: str
    type: pa.DataType
    failed: bool = False
    moved: tuple[int, int] | None = None
    punctuation: bool = False


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """That one column is less than another (or equal, unless `strict`), in Spark's order of values."""

    less: Column
    more: Column
    strict: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """That one stream's event time is at most `micros` later than another's.

    Negative ones mean that it is earlier by at least as much.
    """

    later: int
    earlier: int
    micros: int


@dataclass(frozen=True, slots=True)
class FixedColumn:
    """That a column has one value in every result.

    Attributes:
        column: The column.
        value: The value; a date or a timestamp as Spark counts it, in days or microseconds.
        text: The condition that fixes it, as the user wrote it.
    """

    column: Column
    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class ComparedValue:
    """A value that a conjunct compares.

    Attributes:
        text: As the user wrote it.
        columns: The columns it reads; empty for a constant.
        sql: Its DuckDB expression; None if its last bits are Java's own, or only Spark can compute it.
        term: In the former case, its term.
        is_column: Whether it is nothing but a column, perhaps one that Spark computes.
        is_duration: Whether it is a number of microseconds that stands for a duration.
        unsure: A DuckDB condition; where it is TRUE, the value of `sql` can't be trusted.
    """

    text: str
    columns: tuple[Column, ...]
    sql: str | None
    term: "Term | None" = None
    is_column: bool = False
    is_duration: bool = False
    unsure: str | None = None


@dataclass(frozen=True, slots=True)
class ComparedValues:
    """The values that a conjunct compares, for people.

    Attributes:
        relation: How it relates them: the first to the second, or BETWEEN the two others.
        values: The values; without a single relation, those that can be computed.
    """

    relation: Relation = ""
    values: tuple[ComparedValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Conjunct:
    """One of the conditions that `where` joins by AND.

    Attributes:
        text: As the user wrote it.
        sql: The same as a DuckDB boolean expression over generated column names and call names; None if DuckDB can't
            answer as Spark does.
        columns: Every column it reads, including the arguments of its calls.
        calls: The Python predicates it calls; empty for plain SQL.
        bounds: Its access paths.
        raises: Whether evaluating it may raise (1/0 in ANSI mode); such conjuncts run last, in written order.
        equality: The two columns, if it is nothing but their equality.
        orders: Which columns it requires to be less than others, if it compares nothing but columns.
        fixed: The column and its one value, if it is nothing but that equality.
        unsure: A DuckDB condition; where it is TRUE the answer of `sql` can't be trusted, and Spark decides.
        near: Comparisons that together are the conjunct, if floating point may differ from Spark's in the last bits;
            Spark decides those too close to call.
        why: Why DuckDB can't answer, for people; empty if it can.
        clause: Its number among the conditions, in written order.
        on: Streams that must be present even if it doesn't name them, because it stands in their ON.
        gaps: How far apart event times may be.
        comparing: The values that it compares, for people.
        numeric: Comparisons of numbers that together are the conjunct, if NumPy answers as Spark does; else none.
    """

    text: str
    sql: str | None
    columns: tuple[Column, ...]
    calls: tuple[Call, ...] = ()
    bounds: tuple[Bound, ...] = ()
    raises: bool = False
    equality: tuple[Column, Column] | None = None
    orders: tuple[ColumnOrder, ...] = ()
    fixed: FixedColumn | None = None
    unsure: str | None = None
    near: "tuple[Comparison, ...]" = ()
    why: str = ""
    clause: int = 0
    on: tuple[int, ...] = ()
    gaps: tuple[Gap, ...] = ()
    comparing: ComparedValues = ComparedValues()
    numeric: "tuple[NumericComparison, ...]" = field(default=(), compare=False)

    @property
    def streams(self) -> frozenset[int]:
        """The streams that must be present before the conjunct can be evaluated."""
        return frozenset((*self.on, *(column.stream for column in self.columns)))

    def after_on(self, streams: Collection[int]) -> "Conjunct":
        """Return it as a condition on partners, tested only on combinations with tuples of some streams.

        It is itself if it reads all of them.

        [!] Hence it keeps no tuple out of the join, even if it reads only one stream or none.
        """
        if self.streams.issuperset(streams):
            return self
        return replace(self, on=tuple(sorted(streams)), fixed=None)

    @property
    def lasting_bounds(self) -> tuple[Bound, ...]:
        """The bounds that hold for all rows, those to come included."""
        return tuple(bound for bound in self.bounds if not bound.conditional)

    @property
    def is_call(self) -> bool:
        """Whether the conjunct is nothing but one call of a Python predicate."""
        return len(self.calls) == 1 and self.sql == self.calls[0].name and self.unsure is None

    @property
    def opaque(self) -> bool:
        """Whether only Spark can decide anything about it."""
        return self.sql is None and not self.near

    @property
    def exact(self) -> bool:
        """Whether it is decided here, for every combination."""
        return self.sql is not None and self.unsure is None

    @property
    def condition(self) -> str:
        """The SQL of what passes here: where it holds, and where Spark must decide."""
        assert self.sql is not None
        return self.sql if self.unsure is None else f"({self.sql} OR {self.unsure})"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The settings and features of a Spark session on which the meaning of expressions depends.

    Attributes:
        time_zone: `spark.sql.session.timeZone`.
        ansi: `spark.sql.ansi.enabled`.
        wide_vectors: Whether functions of vectors sum in 64 bits.
    """

    time_zone: str = "UTC"
    ansi: bool = True
    wide_vectors: bool = True

    def describe(self) -> str:
        """Return the settings in words."""
        return f"time zone {self.time_zone} and ANSI mode {'on' if self.ansi else 'off'}"
