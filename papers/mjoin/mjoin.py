"""MJoin: a natural join of one to many that drops what punctuations and constraints show to be of no more use.

Ding, Rundensteiner and Heineman, "MJoin: A Metadata-Aware Stream Join Operator" (2003), sections 4 and 5. All rests on
one notion: a stream is closed for a key when it has promised to bring no more of it, and none that still matters is
kept. Then tuples of the other stream with that key may go, and punctuations with it may go out.

Where this is not the paper:

- Its immediate purge looks neither at the waiting pool nor at the part on disk, and would lose results. Here waiting
  tuples that a punctuation speaks of are processed before it, and a bucket with a part on disk closes nothing until
  that part has been read.
- Its figure 7, read as code, stores only some of the tuples that its section 5.3 stores. The text is followed.
- Punctuations may come with either stream. A key is a constant; a pattern would be tested by the same scan.
- Keys that are closed are remembered for ever, as in the paper. They are not counted as tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from papers.mjoin.binary_join import Operator
from papers.mjoin.feed import MANY, ONE, OTHER, SIDES, Element, Punctuation, Row, Side
from papers.mjoin.schedule import StreamSchedule, TupleSchedule
from papers.mjoin.state import Memory, State, largest

OnDisk = Mapping[Side, list[Row]]
"""What has been read of a bucket's parts on disk."""
NOTHING_READ: OnDisk = {}


class Half:
    """What MJoin keeps and knows of one of its streams: state, waiting tuples, punctuations (section 5.1).

    Attributes:
        state: Tuples that later ones may have to meet.
        waiting: The waiting pool: tuples that are retrieved but not processed.
        ended: Keys of which no more will come, the punctuated range.
        unpurged: Those of them that no purge has seen.
        held_back: The punctuation collection: keys whose punctuations have not gone out.
    """

    def __init__(self, memory: Memory) -> None:
        self.state: State[Row] = State(memory)
        self.waiting: list[Row] = []
        self.ended: set[int] = set()
        self.unpurged: set[int] = set()
        self.held_back: set[int] = set()

    def is_closed(self, key: int, on_disk: Sequence[Row] | None = None) -> bool:
        """Return whether no tuple of this stream that has the key can be in any later result.

        BlockBuffer tuples need not be asked: `end` hands them out first.

        Args:
            key: The key.
            on_disk: What its bucket has on disk, if it was read; what was not read could hold anything.
        """
        if key not in self.ended:
            return False
        if on_disk is None:
            hidden = self.state.has_disk_part(self.state.bucket_of(key))
        else:
            hidden = any(row.key == key for row in on_disk)
        return not hidden and not self.state.matches(key)

    def end(self, key: int, propagates: bool) -> None:
        """Take note of a punctuation; no tuple that it speaks of may be waiting any more."""
        self.ended.add(key)
        self.unpurged.add(key)
        if propagates:
            self.held_back.add(key)

    def release(self, key: int | None = None) -> list[Row]:
        """Return the waiting tuples, all or those with one key, which then wait no longer."""
        if not self.waiting:
            return []
        rows = [row for row in self.waiting if key is None or row.key == key]
        self.waiting = [row for row in self.waiting if key is not None and row.key != key]
        return rows


@dataclass(frozen=True, slots=True)
class Settings:
    """How MJoin works.

    Attributes:
        memory: Layout and limit of its state.
        purge_every: After how many punctuations state is purged: 1 is the paper's immediate purging, its rule 2 (least
            memory); more are batch purging, rule 1 (highest rate).
        clustered: Whether tuples of the many with one key come without others between them (1-NC); else it relies on
            punctuations alone (1-NP).
        propagates: Whether punctuations go to the output.
    """

    memory: Memory
    purge_every: int = 1
    clustered: bool = False
    propagates: bool = True


class MJoin(Operator):
    """The metadata-aware join."""

    def __init__(self, streams: StreamSchedule, tuples: TupleSchedule, settings: Settings) -> None:
        super().__init__(streams)
        self.settings = settings
        self.tuples = tuples
        self.halves = (Half(settings.memory), Half(settings.memory))
        self.states = (self.halves[ONE].state, self.halves[MANY].state)
        self._turn: Side = ONE
        self._cluster: int | None = None
        self._partner: Row | None = None
        self._to_visit: dict[tuple[Side, int], None] = {}
        self._to_clean_up: dict[int, None] = {}

    @property
    def in_memory(self) -> int:
        """See Operator."""
        return self._stored + sum(len(half.waiting) for half in self.halves)

    @property
    def _stored(self) -> int:
        return self.states[ONE].in_memory + self.states[MANY].in_memory

    @property
    def on_disk(self) -> int:
        """See Operator."""
        return self.states[ONE].on_disk + self.states[MANY].on_disk

    # -- retrieving

    def _choose(self, ready: tuple[bool, bool]) -> Side:
        """Stay with a cluster whose partner is at hand (section 5.4)."""
        if self._partner is not None and ready[MANY] and self.queues[MANY][0].key == self._partner.key:
            return MANY
        return self.streams.pick(ready)

    def _take(self, side: Side, element: Element) -> None:
        if side != self._turn:
            self._process_waiting()
            self._turn = side
        if isinstance(element, Punctuation):
            self._end(side, element.key)
            return
        if self.settings.clustered and side == MANY:
            self._begin_cluster(element.key)
        if self.tuples.waits(element.key, self.halves[OTHER[side]].held_back):
            self.halves[side].waiting.append(element)
        else:
            self._process(side, element)

    def _begin_cluster(self, key: int | None) -> None:
        """A tuple with another key says that there are no more with the last one."""
        if key != self._cluster:
            ended, self._cluster, self._partner = self._cluster, key, None
            if ended is not None:
                self._end(MANY, ended)

    # -- the stage in memory

    def _process(self, side: Side, row: Row) -> None:
        if side == MANY:
            self._process_many(row)
            return
        for match in self.states[MANY].take(row.key):
            self._emit(row, match)
        if not self.halves[MANY].is_closed(row.key):
            self._store(ONE, row)
        self._propagate(row.key)

    def _process_many(self, row: Row) -> None:
        """Join with the one partner there is, and forget; keep only what has not met it."""
        partner = self._partner
        if partner is None or partner.key != row.key:
            partner = next(iter(self.states[ONE].matches(row.key)), None)
        if partner is not None:
            self._emit(partner, row)
            if self._cluster == row.key:
                self._partner = partner
        elif not self.halves[ONE].is_closed(row.key):
            self._store(MANY, row)

    def _store(self, side: Side, row: Row) -> None:
        at = self.states[side].insert(row)
        if self.states[OTHER[side]].has_disk_part(at):
            self._to_visit[OTHER[side], at] = None
        if self._stored > self.settings.memory.limit:
            self._purge()
        while self._stored > self.settings.memory.limit:
            self._flush()

    def _flush(self) -> None:
        side, at = largest(self.states)
        self.states[side].flush(at)
        if all(state.has_disk_part(at) for state in self.states):
            self._to_clean_up[at] = None

    def _process_waiting(self) -> bool:
        """Go back to sequential scheduling: process all that wait."""
        has_worked = False
        for side in SIDES:
            for row in self.halves[side].release():
                self._process(side, row)
                has_worked = True
        return has_worked

    # -- what punctuations do

    def _end(self, side: Side, key: int) -> None:
        """Take note that a stream brings no more of a key, once all that it has brought is processed."""
        if key in self.halves[side].ended:
            return
        for row in self.halves[side].release(key):
            self._process(side, row)
        self.halves[side].end(key, self.settings.propagates)
        at = self.states[side].bucket_of(key)
        if any(state.has_disk_part(at) for state in self.states):
            self._to_clean_up[at] = None
        if sum(len(half.unpurged) for half in self.halves) >= self.settings.purge_every:
            self._purge()

    def _purge(self) -> bool:
        """Scan what is in memory for tuples that new punctuations made useless, and pass on those that can be."""
        has_worked = False
        for side in SIDES:
            keys, self.halves[side].unpurged = self.halves[side].unpurged, set()
            closed_keys = {key for key in keys if self.halves[side].is_closed(key)}
            if closed_keys:
                self.states[OTHER[side]].drop(closed_keys)
            for key in keys:
                self._propagate(key)
            has_worked = has_worked or bool(keys)
        return has_worked

    def _propagate(self, key: int, on_disk: OnDisk = NOTHING_READ) -> None:
        """Let punctuations with a key go out if nothing that they speak of can."""
        holding = [half for half in self.halves if key in half.held_back]
        if holding and any(self.halves[side].is_closed(key, on_disk.get(side)) for side in SIDES):
            for half in holding:
                half.held_back.remove(key)
                self.output.append(Punctuation(key))

    # -- the other stages

    def _stages(self) -> Sequence[Callable[[], bool]]:
        return self._process_waiting, self._end_last_cluster, self._purge, self._memory_with_disk, self._clean_up

    def _end_last_cluster(self) -> bool:
        if not self.finished or self._cluster is None:
            return False
        self._begin_cluster(None)
        return True

    def _memory_with_disk(self) -> bool:
        if not self._to_visit:
            return False
        (side, at), _ = self._to_visit.popitem()
        self._join_bucket(at, (side,))
        return True

    def _clean_up(self) -> bool:
        if not self._to_clean_up:
            return False
        at, _ = self._to_clean_up.popitem()
        self._join_bucket(at, SIDES)
        return True

    def _join_bucket(self, at: int, sides: Collection[Side]) -> None:
        """Read a bucket's parts on disk of some streams, join them with all that is at hand, drop what is done.

        What is in memory of both streams has met already: it is at hand but has no partner.
        """
        read = {side: self.states[side].read_disk(at) for side in sides if self.states[side].has_disk_part(at)}
        partners = {row.key: row for row in (*self.states[ONE].buckets[at], *read.get(ONE, ()))}
        self.states[MANY].keep(at, self._unjoined(self.states[MANY].buckets[at], partners))
        if MANY in read:
            read[MANY] = self._unjoined(read[MANY], partners)
        for side in SIDES:
            self.states[side].keep(at, self._useful(side, self.states[side].buckets[at], read))
            if side in read:
                read[side] = self._useful(side, read[side], read)
                self.states[side].write_disk(at, read[side])
        for key in {key for half in self.halves for key in half.held_back if half.state.bucket_of(key) == at}:
            self._propagate(key, read)

    def _unjoined(self, rows: Sequence[Row], partners: Mapping[int, Row]) -> list[Row]:
        """Join rows of the many with their partners; return those that have none."""
        for row in rows:
            if row.key in partners:
                self._emit(partners[row.key], row)
        return [row for row in rows if row.key not in partners]

    def _useful(self, side: Side, rows: Sequence[Row], on_disk: OnDisk) -> list[Row]:
        other = OTHER[side]
        return [row for row in rows if not self.halves[other].is_closed(row.key, on_disk.get(other))]
