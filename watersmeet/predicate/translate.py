"""From sqlglot's tree to a typed DuckDB expression; a node that is not in the tables is refused."""

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.predicate.conditionals import condition
from watersmeet.predicate.conditions import CONDITIONS
from watersmeet.predicate.expr import Expr, Refusal
from watersmeet.predicate.model import Call, Dialect, PythonPredicate
from watersmeet.predicate.scope import Scope
from watersmeet.predicate.source import Node, Source
from watersmeet.predicate.values import VALUES

HANDLERS = {**VALUES, **CONDITIONS}

REFUSED: tuple[tuple[tuple[type, ...], str], ...] = (
    ((exp.Query, exp.Subquery, exp.Exists), "`where` can't hold a subquery; join the other table as a stream."),
    ((exp.Window,), "`where` looks at one combination of rows: window functions are not for it."),
    ((exp.Lambda,), "Lambdas can't be carried over; use a Python predicate, listed in predicates=[...]."),
    ((exp.CurrentDate, exp.CurrentTimestamp), "The answer would change from run to run; `where` must be deterministic."),
    ((exp.Placeholder, exp.Parameter), "Parameters are not filled in; put the value into the text."),
    ((exp.Command, exp.DDL, exp.DML, exp.Drop, exp.Block), "`where` is a condition, not a statement."),
)


class Translator:
    """Translates the nodes of one `where`; remembers the Python predicates it met."""

    def __init__(self, source: Source, scope: Scope, predicates: Sequence[PythonPredicate], dialect: Dialect) -> None:
        self.source, self.scope, self.predicates, self.dialect = source, scope, predicates, dialect
        self.calls: list[Call] = []

    def expr(self, node: Node) -> Expr:
        """The node's expression; a refusal underlines the innermost node that caused it."""
        try:
            if type(node) not in HANDLERS:
                raise Refusal(_refusal_of(node))
            return HANDLERS[type(node)](self, node)
        except Refusal as refusal:
            raise Refusal(refusal.problem, refusal.node or node) from None

    def boolean(self, node: Node) -> Expr:
        """The node's expression, which must be a condition."""
        made = self.expr(node)
        try:
            return condition(made, self.dialect)
        except Refusal as refusal:
            raise Refusal(refusal.problem, node) from None


def _refusal_of(node: Node) -> str:
    for kinds, problem in REFUSED:
        if isinstance(node, kinds):
            return problem
    return f"{type(node).__name__} can't be carried over from Spark's SQL."
