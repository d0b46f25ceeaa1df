"""In words: what lets the state of a join shrink, and which state is kept for ever; nothing is decided here."""

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
from watersmeet.metadata.expiry import is_keyed, superseding_columns
from watersmeet.predicate.model import Column
from watersmeet.predicate.types import spark_name
from watersmeet.probe.ranges import columns_of
from watersmeet.query.query import Query


class Outlook:
    """Describes what closes the streams of a join.

    In a join with optional streams, state leaves only by windows and by newer as-of tuples.

    Args:
        query: The join.
    """

    def __init__(self, query: Query) -> None:
        self._query, self._closing_rules = query, ClosingRules(query)

    def describe_closing(self, stream: int) -> list[str]:
        """Return in words each rule that closes a stream for some partial result."""
        return list(dict.fromkeys(rule.describe(self._query) for rule in self._rules(stream)))

    def is_endless(self, stream: int) -> bool:
        """Tell whether tuples of a stream are kept for ever: it has no window, and no other stream is closed for them.

        With optional streams only windows count. Tables are read again, and in an as-of stream newer tuples of a key
        supersede older ones.
        """
        if self._query.streams[stream].table or (stream in self._query.as_of_streams and is_keyed(self._query, stream)):
            return False
        return self._is_unbounded(stream) and (
            bool(self._query.optional) or not self._closing_rules.can_have_dead_rows(stream)
        )

    def describe_superseding(self, stream: int) -> Iterator[str]:
        """Yield in words when a tuple of an as-of stream leaves before its window ends."""
        columns = superseding_columns(self._query).get(stream)
        if columns is not None:
            alike = " and ".join(map(self._query.name_of, columns))
            yield f"a tuple leaves once a newer one{f' with the same {alike}' if alike else ''} supersedes it"

    def is_never_closed(self, stream: int) -> bool:
        """Tell whether nothing ever closes a stream for which tuples without a window wait."""
        others = self._closing_rules.awaited_streams((stream,)) if not self._query.optional else []
        return any(map(self._is_unbounded, others)) and not self._rules(stream)

    def _is_unbounded(self, stream: int) -> bool:
        window = self._query.streams[stream].window
        return window.span is None and window.rows is None

    def warn(self) -> Iterator[str]:
        """Yield all warnings to consider before a join starts."""
        yield from self.warn_of_growth()
        yield from self.warn_of_useless()

    def warn_of_growth(self) -> Iterator[str]:
        """Yield a warning for each stream whose tuples are kept for ever."""
        for at, stream in enumerate(self._query.streams):
            if self.is_endless(at):
                yield (
                    f"Stream '{stream.name}' has no window, and nothing ever removes its tuples: state will grow for "
                    f"as long as the join runs. {self._suggest(at)}"
                )

    def warn_of_useless(self) -> Iterator[str]:
        """Yield a warning for each constraint that lets no state go, or finds no orphans."""
        for at, stream in enumerate(self._query.streams):
            used = {rule.depends_on for rule in self._rules(at)}
            for constraint in stream.constraints:
                if isinstance(constraint, ForeignKey):
                    yield from self._explain_no_orphans(at, constraint)
                elif (at, constraint) not in used and not isinstance(constraint, InheritedPunctuations):
                    yield self._explain_useless(at, constraint)

    def _explain_no_orphans(self, stream: int, constraint: ForeignKey) -> Iterator[str]:
        """Yield why a foreign key finds no orphans, if nothing ever denies values of the parent that did not come."""
        name, parent = self._query.name_of(constraint.parent), self._query.streams[constraint.parent.stream]
        denying = (other for other in parent.constraints if isinstance(other, SortOrder | PunctuationScheme))
        if any(fields_of(other) == (constraint.parent.field,) for other in denying):
            return
        reason = f"nothing says that a value of {name} can no longer come if it never came"
        remedy = f"Declare an order of, or punctuations on, {name}."
        if parent.table:
            reason = f"{parent.name} is a table, which declares nothing"
            remedy = f"To find rows without a row of {parent.name}, use Spark's own left anti join."
        yield f"{self._subject(stream, constraint)}, by which no orphans will be found: {reason}. {remedy}"

    def _subject(self, stream: int, constraint: Constraint) -> str:
        """Return the beginning of a warning about a constraint."""
        name = self._query.streams[stream].name
        return f"Stream '{name}' declares {self._query.describe_constraint(stream, constraint)}"

    def _rules(self, stream: int) -> list[ClosingRule]:
        """Return the rules by which a stream is closed for partial results over all others; none if one is optional."""
        if self._query.optional:
            return []
        return self._closing_rules.rules_for(stream, [at for at in range(len(self._query.streams)) if at != stream])

    def _explain_useless(self, stream: int, constraint: Constraint) -> str:
        """Return the warning that says why a constraint lets no state go."""
        subject = self._subject(stream, constraint)
        if self._query.optional:
            return f"{subject}, which removes no state: with how=, only windows do. It only denies rows."
        columns = [Column(stream, at) for at in fields_of(constraint)]
        free = [
            column
            for column in columns
            if isinstance(constraint, SortOrder) or not self._closing_rules.constrains(column, constraint)
        ]
        names = " and ".join(self._query.name_of(column) for column in free)
        kinds = " and ".join(dict.fromkeys(spark_name(self._query.type_of(column)) for column in free))
        how = "bounds" if isinstance(constraint, SortOrder) else "equates"
        nor = "" if isinstance(constraint, SortOrder) else ", and with no constant"
        nor += ", nor does it bound it" if any(ranges_of(constraint)) else ""
        return (
            f"{subject}, which removes no state: `where` {how} {names} with no column of another stream of the same "
            f"type ({kinds}){nor}. It only denies rows."
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
        """Return a sentence that advises what would let the tuples of a stream go."""
        if stream in self._query.as_of_streams:
            return "Give it a tolerance, such as wm.asof('5 minutes'), or a window."
        if self._query.optional:
            return "Give it a window."
        partners = [
            self._partner_column(stream, pair) for pair in self._equalities if stream in {c.stream for c in pair}
        ]
        wishes = [f"a key of, or punctuations on, {name}" for name in map(self._query.name_of, partners)]
        orders = [order for conjunct in self._query.conjuncts for order in conjunct.orders]
        wishes += [f"that {self._query.name_of(order.less)} rises" for order in orders if order.more.stream == stream]
        wishes += [f"that {self._query.name_of(order.more)} falls" for order in orders if order.less.stream == stream]
        for name, moves in self._bounded_columns(stream):
            wishes += [f"that {name} {moves}", f"punctuations on ranges of {name}"]
        return f"Give it a window{''.join(f', or declare {each}' for each in dict.fromkeys(wishes))}."

    def _bounded_columns(self, stream: int) -> Iterator[tuple[str, str]]:
        """Yield the columns that a stream bounds, and how they would have to move to let its tuples go."""
        others = [conjunct for conjunct in self._query.conjuncts if conjunct.equality is None and not conjunct.orders]
        for bound in (bound for conjunct in others for bound in conjunct.lasting_bounds):
            if {column.stream for column in columns_of([bound])} == {stream}:
                moves = ["rises"] * (bound.high is not None) + ["falls"] * (bound.low is not None)
                yield self._query.name_of(bound.column), " or ".join(moves)

    def _partner_column(self, stream: int, pair: tuple[Column, Column]) -> Column:
        return pair[1] if pair[0].stream == stream else pair[0]
