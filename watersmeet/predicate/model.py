"""The parts a `where` is made of, once parsed: conjuncts, their columns, calls and bounds."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

if TYPE_CHECKING:
    from watersmeet.predicate.terms import Comparison, Term

Relation = Literal["", "<", "<=", ">", ">=", "=", "<>", "<=>", "BETWEEN"]
"""How a conjunct relates the values that it compares; empty where it is no single comparison."""
Form = Literal["array", "pair", "matrix"]


@dataclass(frozen=True, slots=True, order=True)
class Column:
    """A column of a stream, by position: `stream` among the join's streams, `field` among the stream's columns."""

    stream: int
    field: int

    @property
    def name(self) -> str:
        """The generated name under which DuckDB knows the column; user names never reach it."""
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
        symmetric: Whether it answers the same for (x, y) and (y, x).
    """

    name: str
    function: Callable[..., Any]
    form: Form = "array"
    nulls: bool = False
    arrow: bool = False
    symmetric: bool = False

    def __call__(self, *args: Any) -> Any:
        """Call the user's function as it is, for tests of one's own; given columns of PySpark's, return one."""
        if any(type(arg).__module__.startswith("pyspark.sql") for arg in args):
            return import_module("watersmeet.spark.sql.written").called(self.name, args)
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
    """A call of a Python predicate inside a conjunct; the conjunct's SQL knows its answer as the column `name`."""

    name: str
    predicate: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A value that operations start from: a DuckDB expression of type DOUBLE, and the columns it reads."""

    sql: str
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that raises beyond the width of its type, or beyond which a bound doesn't hold.

    Attributes:
        sign: One of + - * abs, or `is` for its only part as it is.
        parts: What it is applied to.
        limit: It can't raise while its result lies within [-limit, limit].
        scale: What the result is multiplied by: dates are days, their difference is in microseconds.
    """

    sign: str
    parts: "tuple[Operand | Operation, ...]"
    limit: float
    scale: float = 1.0

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The values it starts from."""
        return tuple(o for part in self.parts for o in ((part,) if isinstance(part, Operand) else part.operands))


@dataclass(frozen=True, slots=True)
class Bound:
    """An access path that a conjunct offers: rows of `column` outside [low, high] can't satisfy it.

    It gives a superset; the conjunct itself stays as residual.

    [!] A row that is never looked at never raises. Where `operations` might, the bound must not be used.

    Attributes:
        column: The column to look up: a number, date, timestamp, boolean or text.
        low: DuckDB expression of type DOUBLE over columns of *other* streams, with a margin where it may round; or None
            for no lower bound.
        high: Likewise, the upper bound.
        columns: The columns that `low` and `high` read.
        operations: What in the conjunct may overflow; the operands read other streams, or are `column` itself.
        conditional: Whether rows beyond the limits of `operations` may satisfy the conjunct outside of it: then it
            serves to look up rows, whose values are known, and says nothing of those to come.
    """

    column: Column
    low: str | None
    high: str | None
    columns: tuple[Column, ...]
    operations: tuple[Operation, ...] = ()
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class HiddenColumn:
    """A column that Spark computes from a stream's own ones when a tuple comes in; no output shows it.

    Attributes:
        text: What it holds, as the user wrote it.
        type: Its type.
        failed: Whether it is the flag of the column before it, TRUE where computing that raised.
        moved: If it is a timestamp of the stream moved by a fixed time, that column's position and the microseconds.
        told: Whether it holds what punctuations from a frame of their own say; it is NULL for tuples.
    """

    text: str
    type: pa.DataType
    failed: bool = False
    moved: tuple[int, int] | None = None
    told: bool = False


@dataclass(frozen=True, slots=True)
class ColumnOrder:
    """That one column is less than another, or at most as much, as Spark orders values."""

    less: Column
    more: Column
    strict: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """That the event time of one stream's member is at most so many microseconds later than that of another's.

    Fewer than none say that it is earlier by at least as many.
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
        text: The condition that says so, as the user wrote it.
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
        sql: The DuckDB expression of it; None if the last bits are Java's own, or Spark has to compute it.
        term: In the former case the term that it is.
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
    """What a conjunct compares, for people.

    Attributes:
        relation: How it relates the values: the first to the second, or BETWEEN the two others.
        values: The values; where there is no one relation, those that can be computed.
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
        columns: Every column it reads, the arguments of its calls included.
        calls: The Python predicates it calls; empty for plain SQL.
        bounds: The access paths it offers.
        raises: Whether evaluating it may raise (1/0 in ANSI mode); such conjuncts run after the others, as written.
        equality: The two columns, where it asks for nothing but that they be equal.
        orders: What it says of the order of two columns, where it compares nothing but columns.
        fixed: The column and its one value, where it asks for nothing but that.
        unsure: A DuckDB condition; where it is TRUE the answer of `sql` can't be trusted, and Spark decides.
        near: Comparisons that together are the conjunct, if floating point may differ from Spark's in the last bits;
            Spark decides the closest.
        why: Why DuckDB can't answer, for people; empty if it can.
        clause: Which of the conditions it is, in written order.
        on: Streams that must be present though it may not name them: those whose ON it stands in.
        gaps: How far apart it lets event times be.
        comparing: What it compares, for people.
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

    @property
    def streams(self) -> frozenset[int]:
        """The streams that must be present before the conjunct can be evaluated."""
        return frozenset((*self.on, *(column.stream for column in self.columns)))

    def after_on(self, streams: Collection[int]) -> "Conjunct":
        """Return it as a condition on partners: it is asked of combinations that have tuples of some streams alone.

        [!] So what it says of one stream, or of none, keeps no tuple out of the join.
        """
        if self.streams.issuperset(streams):
            return self
        return replace(self, on=tuple(sorted(streams)), fixed=None)

    @property
    def lasting_bounds(self) -> tuple[Bound, ...]:
        """The bounds that hold for every row, whatever its values."""
        return tuple(bound for bound in self.bounds if not bound.conditional)

    @property
    def is_call(self) -> bool:
        """Whether the conjunct is nothing but one call of a Python predicate."""
        return len(self.calls) == 1 and self.sql == self.calls[0].name and self.unsure is None

    @property
    def opaque(self) -> bool:
        """Whether only Spark can tell anything of it."""
        return self.sql is None and not self.near

    @property
    def exact(self) -> bool:
        """Whether it is decided here, for every combination."""
        return self.sql is not None and self.unsure is None

    @property
    def condition(self) -> str:
        """The SQL of what it lets pass here: where it holds, and where Spark is to decide."""
        assert self.sql is not None
        return self.sql if self.unsure is None else f"({self.sql} OR {self.unsure})"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What of a Spark session changes what an expression means: its settings and its version.

    Attributes:
        time_zone: `spark.sql.session.timeZone`.
        ansi: `spark.sql.ansi.enabled`.
        wide_vectors: Whether functions of vectors add up in 64 bits.
    """

    time_zone: str = "UTC"
    ansi: bool = True
    wide_vectors: bool = True

    def describe(self) -> str:
        """Return the settings in words."""
        return f"time zone {self.time_zone} and ANSI mode {'on' if self.ansi else 'off'}"
