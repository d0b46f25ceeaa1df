"""What became of combinations where streams are optional: which tuples are partners, and what follows for results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from watersmeet.observe.why.answer import Batches, Check, Combination, Tuple
from watersmeet.observe.why.asked import Asked, listed
from watersmeet.observe.why.judged import Seen
from watersmeet.observe.why.outcome import Closing, Gives, Partners, Survey, gives, results, waits
from watersmeet.observe.why.outputs import Results
from watersmeet.observe.why.spoken import Subject, has_partners, likely, open_until, surveyed
from watersmeet.observe.why.verdict import NEVER, Ground, Member, all_of, joined, many
from watersmeet.observe.why.voice import in_batch, latest
from watersmeet.query.query import Query


class Named(NamedTuple):
    """A tuple that was asked for: what was asked, what became of it, and where its values are."""

    asked: Asked
    told: Tuple
    seen: Seen | None


@dataclass(frozen=True, slots=True)
class Side:
    """A tuple of an optional stream that was asked for.

    Attributes:
        named: The tuple.
        holds: Whether it is a partner of the required tuples asked for; None if that can't be told.
        tests: The tests that it was put to.
        says: The same in sentences.
    """

    named: Named
    holds: bool | None
    tests: tuple[Check, ...] = ()
    says: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """What a combination gives, with the reasons."""

    gives: Gives
    partners: Mapping[int, Partners]
    closing: Closing


@dataclass(frozen=True, slots=True)
class OuterVerdicts:
    """Judges combinations of what was asked for, where streams are optional.

    A result has the tuples named if it shows them, or is there because of them: those of a semi join. Tuples of an anti
    join are in no result.

    Attributes:
        ground: What is known.
        asked: What was asked for, in the order of the streams.
    """

    ground: Ground
    asked: Sequence[Asked]

    @property
    def _query(self) -> Query:
        return self.ground.judged.query

    def of(self, members: Sequence[Member]) -> Combination:
        """Return what became of one combination."""
        named = [Named(asked, *member) for asked, member in zip(self.asked, members, strict=True)]
        found = tuple(one.told for one in named)
        required = [one for one in named if one.asked.stream in self._query.members]
        optional = [one for one in named if one.asked.stream in self._query.optional]
        subject = Subject.of([one.told.stream for one in required], alone=not optional)
        never = [one.told for one in required if one.told.fate in NEVER]
        if never:
            who = listed([f"{told.stream} is {NEVER[told.fate]}" for told in never])
            return Combination(found, False, (), (f"{subject.nothing}: {who}.",) if len(found) > 1 else ())
        seen = [one.seen for one in required if one.seen is not None]
        if len(seen) < len(required):
            return self._by_results(named, (), ())
        tests = tuple(self.ground.judged.tests(seen)) if seen else ()
        refusing = [test for test in tests if test.refuses] or [test for test in tests if test.holds == "raises"]
        if refusing:
            return Combination(found, False, tests, _refused(subject.nothing, refusing))
        left = [test.says for test in tests if test.holds == "unknown"]
        if left:
            return self._by_results(named, tests, (f"As far as can be told here all else holds, but {left[0]}.",))
        sides = [self._side(one, seen, tests, subject) for one in optional]
        if len(required) < len(self._query.members):
            return self._part(named, tests, sides)
        return self._whole(named, tests, sides, seen, subject)

    # -- partners that are asked about

    def _side(self, named: Named, seen: Sequence[Seen], before: Sequence[Check], subject: Subject) -> Side:
        """Return whether a tuple of an optional stream is a partner of the required ones that are asked about."""
        name, of = named.told.stream, f" of {subject.name}" if seen else ""
        no, never = f"{name} is no partner{of}", NEVER.get(named.told.fate)
        if never is not None:
            return Side(named, False, says=(f"{no}: it is {never}.",) if len(self.asked) > 1 else ())
        if named.seen is None:
            untold = f"It can't be told whether {name} is a partner{of}: state does not tell of it."
            return Side(named, None, says=(untold,) if len(self.asked) > 1 else ())
        known = {test.name for test in before if test.kind == "conjunct"}
        tests = tuple(test for test in self.ground.judged.tests([*seen, named.seen]) if test.name not in known)
        refusing = [test for test in tests if test.refuses] or [test for test in tests if test.holds == "raises"]
        if refusing:
            return Side(named, False, tests, _refused(no, refusing))
        left = [test.says for test in tests if test.holds == "unknown"]
        if left:
            return Side(named, None, tests, (f"It can't be told whether {name} is a partner{of}: {left[0]}.",))
        whole = {there.stream for there in seen} == {*self._query.members}
        if (
            whole
            and named.asked.stream in self._query.as_of_streams
            and not self.ground.optional.is_newest(seen, named.seen)
        ):
            return Side(named, False, tests, (f"{name} is not the newest partner{of}.",))
        return Side(named, True, tests, (f"{name} is a partner{of}.",))

    # -- a tuple of each required stream

    def _whole(
        self,
        named: Sequence[Named],
        tests: tuple[Check, ...],
        sides: Sequence[Side],
        seen: Sequence[Seen],
        subject: Subject,
    ) -> Combination:
        """Return what became of a combination of all required streams, and of partners of it."""
        found, query = tuple(one.told for one in named), self._query
        tests, hows = _tests(tests, sides), {query.optional[side.named.asked.stream] for side in sides}
        met = [side.named for side in sides if side.holds]
        if hows == {"left"} and len(query.optional) == 1 and met and met[0].seen is not None:
            every = [*seen, met[0].seen]
            return joined(self.ground, found, tests, every, latest([there.batches for there in every]))
        denied = [one.told.stream for one in met if query.optional[one.asked.stream] == "anti"]
        if denied:
            says = f"{listed(denied)} {'is a partner' if len(denied) == 1 else 'are partners'} of {subject.name}"
            return Combination(found, False, tests, (f"{says}, so that {subject.name} {subject.no_result}.",), None, 0)
        given = self._given(seen)
        said = (*(says for side in sides for says in side.says), *self._said(given, subject, seen))
        if "anti" in hows or any(side.holds is False for side in sides):
            return Combination(found, False, tests, said, None, 0)
        if given.gives == "unknown" or any(side.holds is None for side in sides):
            return self._by_results(named, tests, said, given.closing)
        told = self._told(found, tests, said, given, seen, [one.asked.stream for one in met])
        if told.joined and told.results is None:
            known = self._by_results(named, tests, said, given.closing)
            return known if known.joined else told
        return told

    def _given(self, seen: Sequence[Seen]) -> Given:
        """Return what a combination gives."""
        optional, query = self.ground.optional, self._query
        partners = {at: optional.partners(seen, at) for at in query.optional}
        closing = optional.closing(seen)
        count = {at: found.count for at, found in partners.items()}
        whole = {at: found.whole for at, found in partners.items()}
        return Given(gives(query, count, whole, closing.closed), partners, closing)

    def _told(
        self,
        found: tuple[Tuple, ...],
        tests: tuple[Check, ...],
        says: tuple[str, ...],
        given: Given,
        seen: Sequence[Seen],
        named: Sequence[int],
    ) -> Combination:
        """Return a combination of which it is certain what it gives, or that it is open."""
        if given.gives != "results":
            return Combination(found, False if given.gives == "nothing" else None, tests, says, None, 0)
        count = {at: partners.count for at, partners in given.partners.items()}
        left = [at for at, how in self._query.optional.items() if how == "left" and at not in named]
        number = results(self._query, count, named) if all(given.partners[at].whole for at in left) else None
        return Combination(found, True, tests, says, self._came(given, seen), number)

    def _came(self, given: Given, seen: Sequence[Seen]) -> Batches | None:
        """Return the batch of a combination's first result."""
        first = [partners.came for partners in given.partners.values() if partners.count]
        if not waits(self._query) and first:
            return None if first[0] is None else latest([*(there.batches for there in seen), first[0]])
        return given.closing.batches

    def _said(self, given: Given, subject: Subject, seen: Sequence[Seen]) -> tuple[str, ...]:
        """Return what a combination gives in sentences, the reasons included."""
        query, closing = self._query, given.closing
        names = {at: query.streams[at].name for at in given.partners}
        has = {at: has_partners(subject, names[at], given.partners[at], closing.closed) for at in given.partners}
        every, some = "; ".join(has.values()), any(found.count for found in given.partners.values())
        awaited = not all(query.streams[at].table for at in given.partners)
        waits = () if closing.closed else tuple(open_until(self.ground.judged.voice, closing, some, awaited))
        match given.gives:
            case "nothing":
                return (f"{subject.nothing}: {self._denying(given, has)}.",)
            case "open":
                return (f"{subject.open}: {every}.", *waits)
            case "unknown":
                return (f"State does not tell whether {subject.inside} {subject.a_result}: {every}.", *waits)
        told = self._results(given, subject, seen)
        if closing.closed or "semi" in query.optional.values():
            return (f"{subject.name} {told}: {every}.",)
        return (f"So far {subject.inside} {told}: {every}.", *waits)

    def _denying(self, given: Given, has: Mapping[int, str]) -> str:
        """Return the first reason why there is no result."""
        hows = self._query.optional
        met = [at for at in has if hows[at] == "anti" and given.partners[at].count]
        return has[(met or [at for at in has if hows[at] in ("semi", "asof") and not given.partners[at].count])[0]]

    def _results(self, given: Given, subject: Subject, seen: Sequence[Seen]) -> str:
        """Return how many results a combination gives; of a single one when and where."""
        query, partners = self._query, given.partners
        left = [partners[at] for at, how in query.optional.items() if how == "left"]
        number = results(query, {at: found.count for at, found in partners.items()})
        if not all(found.whole for found in left):
            return f"{subject.gives} at least {many(number, 'result')}"
        if number != 1:
            return f"{subject.gives} {many(number, 'result')}"
        time = max(*(there.ts for there in seen), *(found.time for found in left if found.time is not None), seen[0].ts)
        batches = self._came(given, seen)
        came = "" if batches is None else f", put out {in_batch(batches)}"
        return f"{subject.a_result} at {self.ground.judged.voice.time(time)}{came}"

    # -- not of each

    def _part(self, named: Sequence[Named], tests: tuple[Check, ...], sides: Sequence[Side]) -> Combination:
        """Return what became of tuples to which some required streams are missing."""
        found, query = tuple(one.told for one in named), self._query
        tests, said = _tests(tests, sides), tuple(says for side in sides if not side.holds for says in side.says)
        if any(side.holds is False for side in sides):
            return Combination(found, False, tests, said, None, 0)
        if any(side.holds is None for side in sides):
            return self._by_results(named, tests, said)
        survey = self.ground.optional.survey([one.seen for one in named if one.seen is not None])
        have = {one.asked.stream for one in named}
        members = [query.streams[at].name for at in query.members]
        missing = [query.streams[at].name for at in query.members if at not in have]
        says = (surveyed(survey, len(found), missing, members, partner=bool(sides)),)
        if any(query.optional[side.named.asked.stream] == "anti" for side in sides):
            return Combination(found, False, tests, says, None, 0)
        if survey.results:
            return Combination(found, True, tests, says, None, survey.results)
        if survey.unknown or survey.stopped or not survey.whole:
            return self._by_results(named, tests, says, survey=survey)
        return Combination(found, None if survey.open else False, tests, says, None, 0)

    # -- what results tell

    def _by_results(
        self,
        named: Sequence[Named],
        tests: tuple[Check, ...],
        says: tuple[str, ...],
        closing: Closing | None = None,
        survey: Survey | None = None,
    ) -> Combination:
        """Return what results say, where state doesn't; [!] that there is none yet says nothing of what is open."""
        found, query = tuple(one.told for one in named), self._query
        hows = {query.optional.get(one.asked.stream) for one in named}
        shown = [one for one in named if one.asked.stream not in query.hidden_streams]
        known = self.ground.results([one.asked for one in shown])
        lost = [one for one in named if one.seen is None]
        final = (closing is None or closing.closed) and not (survey is not None and survey.open)
        final = final and all(self.ground.optional.would_find(one.asked) for one in lost)
        says = (*says, self._holding(named, shown, known, final))
        if lost == list(named) and hows == {None} and len(query.members) == 1 and known and not known.count and final:
            says = (*says, *likely(query))
        if "anti" in hows:
            return Combination(found, False, tests, says, None, 0)
        if known is None or (known.count and "semi" in hows):
            return Combination(found, None, tests, says)
        if known.count:
            return Combination(found, True, tests, says, (known.first, known.last), known.count)
        return Combination(found, False if final else None, tests, says, None, 0)

    def _holding(self, named: Sequence[Named], shown: Sequence[Named], known: Results | None, final: bool) -> str:
        """Return what results say in a sentence.

        Args:
            named: What was asked for.
            shown: What of it results show.
            known: The results with it; None if that can't be told.
            final: Whether there will be no others.
        """
        if known is None:
            gone = [one.told.name for one in named if one.told.fate in ("joined", "unknown")]
            why = f", since state does not tell of {listed(gone)}" if gone else ""
            return f"It can't be told whether there is a result with {all_of([one.told for one in named])}{why}."
        names = listed([one.told.stream for one in shown])
        them = all_of([one.told for one in shown]) if len(shown) == len(named) else names
        if not known.count:
            return f"No result in the output holds {them}{'' if final else ' so far'}."
        batches = known.first, known.last
        when = in_batch(batches) if known.first == known.last else f"in batches {known.first} to {known.last}"
        return f"The output holds {many(known.count, 'result')} with {them}, put out {when}."


def _refused(head: str, refusing: Sequence[Check]) -> tuple[str, ...]:
    return (f"{head}: {refusing[0].says}.", *(f"Besides, {test.says}." for test in refusing[1:]))


def _tests(tests: tuple[Check, ...], sides: Sequence[Side]) -> tuple[Check, ...]:
    return (*tests, *(test for side in sides for test in side.tests))
