"""What will let a join's state go, and what never will, for people; nothing is decided by it."""

from collections.abc import Iterator

from watersmeet.metadata.closing import ClosingRules
from watersmeet.metadata.closing_rules import ClosingRule
from watersmeet.metadata.constraints import (
    Constraint,
    ForeignKey,
    InheritedPunctuations,
    PunctuationScheme,
    SortOrder,
    fields_of,
    ranges_of,
)
from watersmeet.metadata.superseded import is_keyed, superseding_columns
from watersmeet.predicate.model import Column
from watersmeet.predicate.types import spark_name
from watersmeet.probe.ranges import columns_of
from watersmeet.query.query import Query


class Outlook:
    """What closes the streams of a join; where some are optional, only windows let state go, and newer as-of tuples.

    Args:
        query: The join.
    """

    def __init__(self, query: Query) -> None:
        self._query, self._closings = query, ClosingRules(query)

    def describe_closing(self, stream: int) -> list[str]:
        """Return what closes a stream for some partial result, each way in words."""
        return list(dict.fromkeys(rule.describe(self._query) for rule in self._rules(stream)))

    def is_endless(self, stream: int) -> bool:
        """Tell whether tuples of a stream are kept for ever: no window ends, and no other stream is closed for them.

        Of an as-of stream those of each key are superseded by newer ones.
        """
        if self._query.streams[stream].table or (stream in self._query.as_of_streams and is_keyed(self._query, stream)):
            return False
        return self._is_unbounded(stream) and (
            bool(self._query.optional) or not self._closings.can_have_dead_rows(stream)
        )

    def describe_superseding(self, stream: int) -> Iterator[str]:
        """Yield when a tuple of an as-of stream goes before its window ends."""
        columns = superseding_columns(self._query).get(stream)
        if columns is not None:
            alike = " and ".join(map(self._query.name_of, columns))
            yield f"a tuple goes once a newer one{f' with the same {alike}' if alike else ''} stands in for it"

    def is_never_closed(self, stream: int) -> bool:
        """Tell whether nothing ever closes a stream, though tuples without a window wait for it."""
        others = self._closings.awaited_streams((stream,)) if not self._query.optional else []
        return any(map(self._is_unbounded, others)) and not self._rules(stream)

    def _is_unbounded(self, stream: int) -> bool:
        window = self._query.streams[stream].window
        return window.span is None and window.rows is None

    def warn(self) -> Iterator[str]:
        """Yield what to look at before a join starts, a sentence each."""
        yield from self.warn_of_growth()
        yield from self.warn_of_useless()

    def warn_of_growth(self) -> Iterator[str]:
        """Yield which streams' tuples are kept for ever."""
        for at, stream in enumerate(self._query.streams):
            if self.is_endless(at):
                yield (
                    f"Stream '{stream.name}' has no window, and nothing ever lets its tuples go: state will grow for "
                    f"as long as the join runs. {self._suggest(at)}"
                )

    def warn_of_useless(self) -> Iterator[str]:
        """Yield which promises let no state go, or find no orphans."""
        for at, stream in enumerate(self._query.streams):
            used = {rule.depends_on for rule in self._rules(at)}
            for constraint in stream.constraints:
                if isinstance(constraint, ForeignKey):
                    yield from self._explain_no_orphans(at, constraint)
                elif (at, constraint) not in used and not isinstance(constraint, InheritedPunctuations):
                    yield self._explain_useless(at, constraint)

    def _explain_no_orphans(self, stream: int, constraint: ForeignKey) -> Iterator[str]:
        """Yield why a foreign key finds no orphans: nothing ever denies values of the parent that did not come."""
        named, parent = self._query.name_of(constraint.parent), self._query.streams[constraint.parent.stream]
        speaking = (given for given in parent.constraints if isinstance(given, SortOrder | PunctuationScheme))
        if not any(fields_of(given) == (constraint.parent.field,) for given in speaking):
            promised = self._query.describe_constraint(stream, constraint)
            said = f"Stream '{self._query.streams[stream].name}' promises {promised}"
            why = f"nothing says that a value of {named} can no longer come if it never came"
            remedy = f"Promise an order of, or punctuations on, {named}."
            if parent.table:
                why = f"{parent.name} is a table, which promises nothing"
                remedy = f"To find rows without a row of {parent.name}, use Spark's own left anti join."
            yield f"{said}, by which no orphans will be found: {why}. {remedy}"

    def _rules(self, stream: int) -> list[ClosingRule]:
        """Return all ways in which a stream is closed for partial results over all others."""
        if self._query.optional:
            return []
        return self._closings.rules_for(stream, [at for at in range(len(self._query.streams)) if at != stream])

    def _explain_useless(self, stream: int, constraint: Constraint) -> str:
        """Return why a promise lets no state go."""
        name = self._query.streams[stream].name
        if self._query.optional:
            said = f"Stream '{name}' promises {self._query.describe_constraint(stream, constraint)}"
            return f"{said}, which lets no state go: with how=, only windows do. It only turns rows away."
        columns = [Column(stream, at) for at in fields_of(constraint)]
        free = [
            column
            for column in columns
            if isinstance(constraint, SortOrder) or not self._closings.constrains(column, constraint)
        ]
        names = " and ".join(self._query.name_of(column) for column in free)
        kinds = " and ".join(dict.fromkeys(spark_name(self._query.type_of(column)) for column in free))
        how = "bounds" if isinstance(constraint, SortOrder) else "equates"
        nor = "" if isinstance(constraint, SortOrder) else ", and with no constant"
        nor += ", nor does it bound it" if any(ranges_of(constraint)) else ""
        return (
            f"Stream '{name}' promises {self._query.describe_constraint(stream, constraint)}, which lets no state go: "
            f"`where` {how} {names} with no column of another stream of the same type ({kinds}){nor}. It only turns "
            "rows away."
        )

    @property
    def _equalities(self) -> list[tuple[Column, Column]]:
        """The pairs of columns of two streams and one type that must be equal."""
        pairs = [conjunct.equality for conjunct in self._query.conjuncts if conjunct.equality is not None]
        return [
            (one, two)
            for one, two in pairs
            if one.stream != two.stream and self._query.type_of(one) == self._query.type_of(two)
        ]

    def _suggest(self, stream: int) -> str:
        """Return what would let a stream's tuples go."""
        if stream in self._query.as_of_streams:
            return "Give it a tolerance, such as wm.asof('5 minutes'), or a window."
        if self._query.optional:
            return "Give it a window."
        found = [self._partner(stream, pair) for pair in self._equalities if stream in {c.stream for c in pair}]
        said = [f"a key of, or punctuations on, {name}" for name in map(self._query.name_of, found)]
        orders = [order for conjunct in self._query.conjuncts for order in conjunct.orders]
        said += [f"that {self._query.name_of(order.less)} rises" for order in orders if order.more.stream == stream]
        said += [f"that {self._query.name_of(order.more)} falls" for order in orders if order.less.stream == stream]
        for name, moves in self._bounded_columns(stream):
            said += [f"that {name} {moves}", f"punctuations on ranges of {name}"]
        return f"Give it a window{''.join(f', or promise {each}' for each in dict.fromkeys(said))}."

    def _bounded_columns(self, stream: int) -> Iterator[tuple[str, str]]:
        """Yield the columns that are kept near what a stream has, and how they would have to move."""
        others = [conjunct for conjunct in self._query.conjuncts if conjunct.equality is None and not conjunct.orders]
        for bound in (bound for conjunct in others for bound in conjunct.lasting_bounds):
            if {column.stream for column in columns_of([bound])} == {stream}:
                moves = ["rises"] * (bound.high is not None) + ["falls"] * (bound.low is not None)
                yield self._query.name_of(bound.column), " or ".join(moves)

    def _partner(self, stream: int, pair: tuple[Column, Column]) -> Column:
        return pair[1] if pair[0].stream == stream else pair[0]
