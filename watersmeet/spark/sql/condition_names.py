"""Names in Spark's tree of a `where`: the columns that each part reads, and the same names qualified."""

from collections.abc import Sequence
from typing import Any

from watersmeet.caching import cached_property
from watersmeet.predicate.expr import Refusal
from watersmeet.predicate.model import Column, PythonPredicate
from watersmeet.predicate.scope import Scope, same_name
from watersmeet.predicate.values import find_predicate
from watersmeet.query.query import StreamSpec
from watersmeet.spark.run.frames import column_name
from watersmeet.spark.sql import purity
from watersmeet.spark.sql.catalyst import ConditionText, NodeBuilder, ParsedNode

STARS = frozenset({"UnresolvedStar", "UnresolvedStarExceptOrReplace"})
ATTRIBUTE, VARIABLE, FUNCTION = "UnresolvedAttribute", "UnresolvedNamedLambdaVariable", "UnresolvedFunction"


class ConditionNames:
    """The names of one `where`; they are looked up when the object is created.

    Args:
        tree: The whole tree.
        text: Its text.
        streams: The join's streams.
        scope: Their columns.
        predicates: The Python predicates that may be called.

    Raises:
        SqlError: If something is named that doesn't exist, or that `where` can't contain.
    """

    def __init__(
        self,
        tree: ParsedNode,
        text: ConditionText,
        streams: Sequence[StreamSpec],
        scope: Scope,
        predicates: Sequence[PythonPredicate],
    ) -> None:
        self._tree, self._text, self._streams, self._scope, self._predicates = tree, text, streams, scope, predicates
        self._reads: dict[ParsedNode, frozenset[Column]] = {}
        self.reads(tree)

    def reads(self, part: ParsedNode) -> frozenset[Column]:
        """Return the columns that a part reads, looked up once; raises SqlError if one of its names is refused."""
        if part not in self._reads:
            try:
                self._reads[part] = self.own_columns(part).union(*map(self.reads, part.children))
            except Refusal as refusal:
                raise self._text.error(refusal.problem, part) from None
        return self._reads[part]

    def streams(self, part: ParsedNode) -> frozenset[int]:
        """Return the streams that a part reads."""
        return frozenset(column.stream for column in self.reads(part))

    def own_columns(self, part: ParsedNode) -> frozenset[Column]:
        """Return the columns that a part itself names, its children aside; raises Refusal if it is refused."""
        purity.refuse(part, self._text.text[slice(*part.span)])
        if part.kind in STARS:
            return self._star(part)
        if self._is_column(part):
            purity.refuse_name(part.names, self._scope)
            return frozenset({self._scope.column(part.names)})
        return frozenset()

    def is_bare(self, part: ParsedNode) -> bool:
        """Tell whether a part is a column, and not a field in one."""
        return part.kind == ATTRIBUTE and len(self._qualified_name(part)) == 2

    def predicate(self, part: ParsedNode) -> PythonPredicate | None:
        """Return the Python predicate that a part calls, if any; raises SqlError if its name is ambiguous."""
        if part.kind != FUNCTION or len(part.names) != 1:
            return None
        try:
            return find_predicate(self._predicates, part.names[0])
        except Refusal as refusal:
            raise self._text.error(refusal.problem, part) from None

    def calls(self, part: ParsedNode) -> list[ParsedNode]:
        """Return the calls of Python predicates in a part, in the order of the text."""
        return [inner for inner in part.walk() if self.predicate(inner) is not None]

    def qualify(self, part: ParsedNode, builder: NodeBuilder) -> Any:
        """Return a column's node with its stream's name before its own; None if the part is not a name."""
        return self._node(part, builder, self._qualified_name(part)) if self._is_column(part) else None

    def number(self, part: ParsedNode, builder: NodeBuilder) -> Any:
        """Return a new node for a column, named by its number in its stream; None if the part is not a name."""
        if not self._is_column(part):
            return None
        column = self._scope.column(part.names)
        return self._node(part, builder, [column_name(column.field), *self._qualified_name(part)[2:]])

    def _node(self, part: ParsedNode, builder: NodeBuilder, names: Sequence[str]) -> Any:
        return (builder.attribute if part.kind == ATTRIBUTE else builder.variable)(*names)

    def _qualified_name(self, part: ParsedNode) -> list[str]:
        column = self._scope.column(part.names)
        stream = self._streams[column.stream]
        has_stream = len(part.names) > 1 and same_name(stream.name, part.names[0])
        return [stream.name, stream.schema.field(column.field).name, *part.names[2 if has_stream else 1 :]]

    def _is_column(self, part: ParsedNode) -> bool:
        """Tell whether a part names a column; inside a lambda all names look like variables."""
        if part.kind == VARIABLE:
            return part.names[0].lower() not in self._variables[part]
        return part.kind == ATTRIBUTE

    @cached_property
    def _variables(self) -> dict[ParsedNode, frozenset[str]]:
        """The variables of the lambdas around each part, in lower case; found once, for the whole tree."""
        variables: dict[ParsedNode, frozenset[str]] = {}

        def visit(part: ParsedNode, bound: frozenset[str]) -> None:
            if part.kind == "LambdaFunction":
                bound |= {variable.names[0].lower() for variable in part.children[1:]}
            variables[part] = bound
            for child in part.children:
                visit(child, bound)

        visit(self._tree, frozenset())
        return variables

    def _star(self, part: ParsedNode) -> frozenset[Column]:
        """Return the columns that `stream.*` reads; raises Refusal unless it names a stream."""
        target = part.handle.target()
        name = str(target.get().mkString(".")) if target.isDefined() else ""
        for position, stream in enumerate(self._streams):
            if same_name(stream.name, name):
                return frozenset(Column(position, at) for at in range(len(stream.schema)))
        raise Refusal(f"`{name}{'.' if name else ''}*` names no stream; write {self._streams[0].name}.*.")
