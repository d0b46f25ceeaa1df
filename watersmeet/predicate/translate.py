"""From sqlglot's tree to typed DuckDB expressions; nodes that are not in the tables are refused."""

from collections.abc import Sequence

from sqlglot import exp

from watersmeet.predicate.conditions import CONDITIONS, as_condition
from watersmeet.predicate.expr import Expr, Refusal
from watersmeet.predicate.model import Call, Dialect, PythonPredicate
from watersmeet.predicate.scope import Scope
from watersmeet.predicate.source import ColumnPath, ForeignExpression, ParsedText, SqlNode
from watersmeet.predicate.values import VALUES

HANDLERS = {**VALUES, **CONDITIONS}

REFUSALS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((exp.Query, exp.Subquery, exp.Exists), "`where` can't contain a subquery; join the other table as a stream."),
    ((exp.Window,), "`where` looks at one combination of rows, so it can't use window functions."),
    ((exp.Lambda,), "Lambdas can't be translated; use a Python predicate, listed in predicates=[...]."),
    (
        (exp.CurrentDate, exp.CurrentTimestamp),
        "The answer would change from run to run; `where` must be deterministic.",
    ),
    ((exp.Placeholder, exp.Parameter), "Parameters are not filled in; put the value into the text."),
    ((exp.Command, exp.DDL, exp.DML, exp.Drop, exp.Block), "`where` is a condition, not a statement."),
)


PLAIN_PARTS = {"this", "expression", "expressions"}
PARTS: dict[type[SqlNode], set[str]] = {
    exp.Anonymous: PLAIN_PARTS,
    exp.Between: PLAIN_PARTS | {"low", "high"},
    exp.Case: PLAIN_PARTS | {"ifs", "default"},
    exp.Cast: PLAIN_PARTS | {"to", "safe", "_type"},
    exp.TryCast: PLAIN_PARTS | {"to", "safe", "_type"},
    exp.Column: PLAIN_PARTS | {"table", "db", "catalog"},
    ColumnPath: PLAIN_PARTS | {"path"},
    exp.Div: PLAIN_PARTS | {"typed", "safe"},
    exp.DPipe: PLAIN_PARTS | {"safe"},
    exp.If: PLAIN_PARTS | {"true", "false"},
    exp.ILike: PLAIN_PARTS | {"negate"},
    exp.In: PLAIN_PARTS | {"query"},
    exp.Interval: PLAIN_PARTS | {"unit"},
    exp.Like: PLAIN_PARTS | {"negate"},
    exp.Literal: PLAIN_PARTS | {"is_string"},
}
"""The parts of a node that its handler reads; a node with any other is refused, not misread."""


class Translator:
    """Translates the nodes of one `where`, and collects its calls of Python predicates in `calls`."""

    def __init__(
        self, source: ParsedText, scope: Scope, predicates: Sequence[PythonPredicate], dialect: Dialect
    ) -> None:
        self.source, self.scope, self.predicates, self.dialect = source, scope, predicates, dialect
        self.calls: list[Call] = []

    def expr(self, node: SqlNode) -> Expr:
        """The node's expression; adds its calls of Python predicates to `calls`.

        Raises:
            Refusal: If it can't be translated; it names the innermost node that caused it.
        """
        try:
            unread = {name for name, part in node.args.items() if part} - PARTS.get(type(node), PLAIN_PARTS)
            if type(node) not in HANDLERS or unread:
                raise Refusal(_refusal_of(node))
            return HANDLERS[type(node)](self, node)
        except Refusal as refusal:
            raise Refusal(refusal.problem, refusal.node or node) from None

    def try_expr(self, node: SqlNode) -> Expr | None:
        """The node's expression, as `expr`; None if it can't be translated."""
        try:
            return self.expr(node)
        except Refusal:
            return None

    def boolean(self, node: SqlNode) -> Expr:
        """The node's expression as a boolean, which NULL may be too; a refusal names the node that is no condition."""
        expr = self.expr(node)
        try:
            return as_condition(expr, self.dialect)
        except Refusal as refusal:
            raise Refusal(refusal.problem, node) from None


def _refusal_of(node: SqlNode) -> str:
    """Return why a node can't be translated."""
    if isinstance(node, ForeignExpression):
        return f"{node.name} can be evaluated only by Spark."
    for kinds, problem in REFUSALS:
        if isinstance(node, kinds):
            return problem
    return f"{type(node).__name__} can't be translated from Spark's SQL."
