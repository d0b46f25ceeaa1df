"""Partners in state: the engine's own hops find them, and its marks say which combinations are closed."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from watersmeet.arrays import Ints
from watersmeet.batch.closed_combinations import closing_times, is_closed
from watersmeet.batch.newest_partners import NONE as NO_ROW
from watersmeet.batch.newest_partners import Newest
from watersmeet.batch.optional_results import alone, partner_step
from watersmeet.errors import PredicateError
from watersmeet.observe.why.answer import Batches
from watersmeet.observe.why.asked import Asked
from watersmeet.observe.why.judged import Judged, Seen, block_of, longer
from watersmeet.observe.why.kept import Kept
from watersmeet.observe.why.outcome import Closing, Gives, OptionalStreams, Partners, Survey, gives, results
from watersmeet.observe.why.voice import in_batch, latest
from watersmeet.probe.hop_steps import step
from watersmeet.probe.newest_rows import AT
from watersmeet.probe.partials import Partials, concat
from watersmeet.spilling.owed import ALL, NEWEST

MOST_COMBINATIONS = 10_000
"""No more combinations are looked at than about this."""
NONE: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Stored(OptionalStreams):
    """What the state of a query tells of its optional streams.

    Attributes:
        kept: The state.
        judged: What tests combinations.
        history: The progress of its batches, the last ones.
    """

    kept: Kept
    judged: Judged
    history: Sequence[Mapping[str, Any]] = ()

    def partners(self, seen: Sequence[Seen], optional: int) -> Partners:
        """See OptionalStreams."""
        stopped = self._unanswered()
        if stopped:
            return Partners(0, False, stopped=stopped)
        block = block_of(self.judged.query, seen)
        whole = bool(self.kept.holds_all(optional, block.high)[0])
        try:
            found = list(self._met(block, optional))
        except PredicateError as error:
            return Partners(0, False, stopped=str(error).rstrip("."))
        if not found:
            return Partners(0, whole)
        if optional in self.judged.query.as_of_streams:
            newest = self.kept.at(int(self._newest(found, 1, optional).row[0]))
            return Partners(1, whole, self._told(newest), newest.ts, newest.batches, newest=True)
        refs = np.concatenate([part.rows[optional] for part in found])
        times = np.concatenate([part.times[optional] for part in found])
        first = self.kept.at(int(refs[np.argmin(times)]))
        return Partners(len(refs), whole, self._told(first), first.ts, self.kept.first_came(refs))

    def is_newest(self, seen: Sequence[Seen], partner: Seen) -> bool:
        """See OptionalStreams."""
        block, stream = block_of(self.judged.query, seen), partner.stream
        newest = self._newest(list(self._met(block, stream)), 1, stream)
        content = self.judged.hops.contents(np.array([partner.ref]))
        return bool(newest.ts[0] == partner.ts and newest.content[0] == content[0])

    def closing(self, seen: Sequence[Seen]) -> Closing:
        """See OptionalStreams."""
        query, state = self.judged.query, self.kept.state
        deadline = int(closing_times(query, block_of(query, seen))[0])
        closed = is_closed(deadline, state.settled)
        batches = self._closed_in(deadline, latest([there.batches for there in seen])) if closed else None
        return Closing(closed, deadline, state.watermark, batches)

    def survey(self, seen: Sequence[Seen]) -> Survey:
        """See OptionalStreams."""
        stopped = self._unanswered()
        if stopped:
            return Survey(whole=False, stopped=stopped)
        try:
            return self._surveyed(seen)
        except PredicateError as error:
            return Survey(whole=False, stopped=str(error).rstrip("."))

    def would_find(self, asked: Asked) -> bool:
        """See OptionalStreams."""
        return self.kept.finds(asked)

    # -- one combination

    def _unanswered(self) -> str:
        lacking = self.judged.unanswered()
        return f"`{lacking}` can't be answered here" if lacking else ""

    def _met(self, block: Partials, optional: int) -> Iterator[Partials]:
        """Yield pairs of a combination and a partner; they note the combination's position."""
        block.tags[AT] = np.arange(len(block))
        role = NEWEST if optional in self.judged.query.as_of_streams else ALL
        found = self.judged.hops.hop(block, partner_step(self.judged.query, optional, role))
        return filter(len, map(self.judged.passing, found))

    def _newest(self, pairs: Sequence[Partials], combinations: int, stream: int) -> Newest:
        """Return the newest partners of combinations among some pairs."""
        newest = Newest(combinations)
        for part in pairs:
            rows = part.rows[stream]
            newest.offer(part.tags[AT], part.times[stream], self.judged.hops.contents(rows), rows)
        return newest

    def _told(self, partner: Seen) -> str:
        """Return a partner in words."""
        spec, voice = self.kept.query.streams[partner.stream], self.judged.voice
        time = spec.schema.names[spec.time]
        values = voice.row({name: value for name, value in self.kept.values(partner).items() if name != time})
        if spec.table:
            return f"with {values}" if values else ""
        shown = f" ({values})" if values else ""
        return f"of {voice.time(partner.ts, partner.stream)}{shown}, which came {in_batch(partner.batches)}"

    def _closed_in(self, deadline: int, came: Batches) -> Batches:
        """Return in which batch a combination was closed whose last member came in another."""
        first, last = came[0], self.kept.state.batch
        for told in self.history:
            if is_closed(deadline, told.get("settled")):
                last = min(last, int(told["batchId"]))
                break
            first = max(first, int(told["batchId"]) + 1)
        return min(first, last), last

    # -- many

    def _surveyed(self, seen: Sequence[Seen]) -> Survey:
        query, settled = self.judged.query, self.kept.state.settled
        named = {there.stream: there.ref for there in seen if there.stream in query.optional}
        found, whole = self._combinations(seen)
        if found is None:
            return Survey(whole=whole)
        count, mine = self._counted(found, named)
        ends = closing_times(query, found)
        kept = {at: self.kept.holds_all(at, found.high) for at in query.optional}
        told = Counter[Gives]()
        put_out = 0
        for number in np.flatnonzero(mine).tolist():
            own = {at: int(partners[number]) for at, partners in count.items()}
            all_there = {at: bool(there[number]) for at, there in kept.items()}
            given = gives(query, own, all_there, is_closed(int(ends[number]), settled))
            told[given] += 1
            put_out += results(query, own, [*named]) if given == "results" else 0
        return Survey(told.total(), put_out, told["open"], told["unknown"], whole)

    def _counted(self, found: Partials, named: Mapping[int, int]) -> tuple[dict[int, Ints], NDArray[np.bool_]]:
        """Return how many partners combinations have, by stream, and which of them have those that are named."""
        count, mine = dict[int, Ints](), np.ones(len(found), bool)
        for at in self.judged.query.optional:
            pairs = list(self._met(found, at))
            if at in self.judged.query.as_of_streams:
                newest = self._newest(pairs, len(found), at)
                count[at] = (newest.row != NO_ROW).astype(np.int64)
                if at in named:
                    own = self.kept.at(named[at])
                    mine &= (newest.ts == own.ts) & (newest.content == self.judged.hops.contents(np.array([own.ref])))
                continue
            places = np.concatenate([NONE, *(part.tags[AT] for part in pairs)])
            count[at] = np.bincount(places, minlength=len(found))
            if at in named:
                refs = np.concatenate([NONE, *(part.rows[at] for part in pairs)])
                mine &= np.isin(np.arange(len(found)), places[refs == named[at]])
        return count, mine

    def _combinations(self, seen: Sequence[Seen]) -> tuple[Partials | None, bool]:
        """Return combinations of the required streams, those that have tuples of these, and whether there are no more.

        If there is none of these, they are those that one of the others is a partner of.
        """
        query = self.judged.query
        start = [there for there in seen if there.stream in query.members] or seen[:1]
        joined, of = tuple(there.stream for there in start), {*query.members, *(there.stream for there in start)}
        blocks = iter([block_of(query, start)])
        missing = [at for at in query.members if at not in joined]
        for target in missing:
            blocks = longer(self.judged.hops, blocks, step(query, joined, target, ALL, of=of))
            joined = (*joined, target)
        found, count = list[Partials](), 0
        for block in filter(len, map(self.judged.passing, blocks)):
            found.append(block)
            count += len(block)
            if count > MOST_COMBINATIONS:
                return alone(query, concat(found)), False
        last = np.array([max(there.ts for there in seen)])
        whole = all(bool(self.kept.holds_all(at, last)[0]) for at in missing)
        return (alone(query, concat(found)) if found else None), whole
