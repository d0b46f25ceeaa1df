"""Near-misses: pairs of a hop that one conjunct alone refuses, a few of each, for people to look at.

Few of them come to the tests of the hop itself: the access path of a conjunct leaves out what it refuses, and a scan
lets nothing see it. So they are looked for beside the hop, among a bounded number of pairs that the access paths of the
other conjuncts propose. What the hop finds, counts and knows of Python predicates stays as it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.limits import limits
from watersmeet.predicate.model import Bound, ComparedValue, Conjunct
from watersmeet.probe.admission import admitted, admitted_times
from watersmeet.probe.candidates import Path, sampled, time_path, value_path
from watersmeet.probe.chunk_probe import Probe
from watersmeet.probe.evaluators.compared_values import plain_text, sides_of, texts_of
from watersmeet.probe.evaluators.near import Comparisons
from watersmeet.probe.evaluators.sql import Sql
from watersmeet.probe.hop_steps import Hop, Step
from watersmeet.probe.partials import Partials, concat
from watersmeet.probe.search import Search

NOBODY = -1
"""Stands for the conjunct that refuses a pair, where none has so far."""
CHUNK = 32
"""Looking into a chunk costs as much as so many pairs, at least."""


@dataclass(slots=True)
class Missed:
    """The near-misses of one conjunct at one hop.

    Attributes:
        conjunct: The conjunct.
        looked: How many pairs were looked at, or what cost as much.
        asked: About how many of them Python predicates were asked.
        found: For each near-miss the references of its rows, by stream.
        compared: For each near-miss the values that the conjunct compares, as text, as far as they are known.
    """

    conjunct: Conjunct
    looked: int = 0
    asked: int = 0
    found: list[dict[int, int]] = field(default_factory=list)
    compared: list[dict[ComparedValue, str]] = field(default_factory=list)

    def lacks(self, most: int) -> bool:
        """Tell whether more are to be looked for."""
        return len(self.found) < most and self.looked < limits().missed_pairs


@dataclass(frozen=True, slots=True)
class NearMisses:
    """Looks for the near-misses of a task's hops.

    Attributes:
        most: How many are wanted of each conjunct and hop; 0 for none.
        search: What proposes pairs.
        sql: Evaluates conjuncts in SQL and Python predicates, and nobody counts or remembers what these answer.
        comparisons: Evaluates conjuncts of real numbers.
        hops: What was found, by hop and by the text of the conjunct.
    """

    most: int
    search: Search
    sql: Sql
    comparisons: Comparisons
    hops: dict[Hop, dict[str, Missed]] = field(default_factory=lambda: defaultdict(dict))

    def look(self, block: Partials, step: Step, node: int | None) -> None:
        """Look for near-misses of a block that probes; for the arguments see `Hops.hop`.

        [!] It raises nothing, whatever goes wrong: what is only shown must not stop a join.
        """
        if not self.most or step.role.old:
            return
        here, conjuncts = self.hops[step.hop], _conjuncts(step)
        for bounds, alike in _by_bounds(step, conjuncts).items():
            wanted = [here.setdefault(conjunct.text, Missed(conjunct)) for conjunct in alike]
            wanted = [missed for missed in wanted if missed.lacks(self.most)]
            try:
                self._look_for(wanted, conjuncts, block, replace(step, bounds=bounds), node)
            except Exception:
                for missed in wanted:
                    missed.looked = limits().missed_pairs

    def _look_for(
        self, wanted: Sequence[Missed], conjuncts: Sequence[Conjunct], block: Partials, step: Step, node: int | None
    ) -> None:
        if not wanted:
            return
        most = limits().missed_pairs - min(missed.looked for missed in wanted)
        pairs, looked = self._pairs(_some(block, most), step, node, most)
        for missed in wanted:
            missed.looked += looked
        if pairs is None:
            return
        for missed, at in self._alone(pairs, conjuncts, wanted):
            few = pairs.take(at[: self.most - len(missed.found)])
            missed.compared += self._compared(few, missed.conjunct)
            missed.found += [{stream: int(refs[one]) for stream, refs in few.rows.items()} for one in range(len(few))]

    def _compared(self, pairs: Partials, conjunct: Conjunct) -> list[dict[ComparedValue, str]]:
        """Return for each pair the values that a conjunct compares."""
        sides = sides_of(self.comparisons, conjunct, pairs) if len(pairs) else []
        texts = (texts_of(sides, at, plain_text) for at in range(len(pairs)))
        return [dict(zip((side.compared for side in sides), of, strict=False)) for of in texts]

    # -- pairs

    def _pairs(self, block: Partials, step: Step, node: int | None, most: int) -> tuple[Partials | None, int]:
        """Return some pairs that windows and the arrival order admit, and how many were looked at for that."""
        found, left = [], most
        for probe in self.search.probes(self.search.sought(block, step), node):
            partial, row, looked = _proposed(probe, left)
            left -= max(CHUNK, looked)
            if len(partial):
                found.append(probe.longer(partial, row))
            if left <= 0:
                break
        return concat(found) if found else None, max(CHUNK, most - left)

    # -- tests

    def _alone(
        self, pairs: Partials, conjuncts: Sequence[Conjunct], wanted: Sequence[Missed]
    ) -> list[tuple[Missed, Ints]]:
        """Return where each of the conjuncts that are wanted alone refuses a pair.

        A pair that is refused twice, or of which one conjunct has no answer, is dropped before the next is tested.

        Args:
            pairs: The pairs.
            conjuncts: All conjuncts of the hop, those that ask Python last.
            wanted: Those whose near-misses are looked for.
        """
        by, at, asked = np.full(len(pairs), NOBODY), np.arange(len(pairs)), False
        numbers = {missed.conjunct.text: number for number, missed in enumerate(wanted)}
        for place, conjunct in enumerate(conjuncts):
            later = [numbers[one.text] for one in conjuncts[place:] if one.text in numbers]
            at = at if later else at[by[at] != NOBODY]
            if conjunct.calls and not asked:
                among = [*enumerate(wanted), *((NOBODY, wanted[number]) for number in later[:1])]
                at, asked = _few(at, by, among), True
            if not len(at):
                return []
            holds, denies = self._asked(pairs.take(at), conjunct)
            first = denies & (by[at] == NOBODY) & (conjunct.text in numbers)
            by[at[first]] = numbers.get(conjunct.text, NOBODY)
            at = at[holds | first]
        return [(missed, at[by[at] == number]) for number, missed in enumerate(wanted)]

    def _asked(self, block: Partials, conjunct: Conjunct) -> tuple[Mask, Mask]:
        """Return where a conjunct holds for sure, and where it does not for sure; where it raises, neither.

        Where it raises for some pairs, they are looked for by halves, and not among many.
        """
        try:
            return self._answered(block, conjunct)
        except Exception:  # whatever a function raises: about these pairs the hop itself may never ask it
            holds, denies = np.zeros((2, len(block)), bool)
            few = min(len(block), max(2, limits().missed_asked)) if len(block) > 1 else 0
            for half in (slice(0, few // 2), slice(few // 2, few)) if few else ():
                part = block.slice(half.start, half.stop - half.start)
                holds[half], denies[half] = self._asked(part, conjunct)
            return holds, denies

    def _answered(self, block: Partials, conjunct: Conjunct) -> tuple[Mask, Mask]:
        unsure = np.empty(0, np.int64)
        if conjunct.near:
            possible = self.comparisons.possible(block, conjunct)
            unsure = self.comparisons.unsure(block, conjunct)
        elif conjunct.calls and not conjunct.raises:
            possible = self.sql.called(block, conjunct)
        else:
            possible = self.sql.decided(block, (conjunct,))
        if conjunct.unsure is not None:
            unsure = self.sql.unsure(block, conjunct)
        holds = np.zeros(len(block), bool)
        holds[possible] = True
        denies = ~holds
        holds[unsure] = False
        return holds, denies


def _conjuncts(step: Step) -> list[Conjunct]:
    """Return the conjuncts that are tested at a hop: those that ask Python last."""
    tested = (*step.sql, *step.near, *step.hopeful, *step.raising, *step.calls)
    return sorted(tested, key=lambda conjunct: bool(conjunct.calls))


def _by_bounds(step: Step, conjuncts: Sequence[Conjunct]) -> dict[tuple[Bound, ...], list[Conjunct]]:
    """Return conjuncts by the access paths that don't leave out what they refuse: those of the others."""
    found: dict[tuple[Bound, ...], list[Conjunct]] = defaultdict(list)
    for conjunct in conjuncts:
        found[tuple(bound for bound in step.bounds if bound not in conjunct.bounds)].append(conjunct)
    return found


def _some(block: Partials, most: int) -> Partials:
    """Return at most `most` of a block's partial results, from all over it; never the block itself, which is in use."""
    count = min(len(block), most)
    return block.take(np.arange(count) * len(block) // count)


def _proposed(probe: Probe, most: int) -> tuple[Ints, Ints, int]:
    """Return pairs of a probe that are admitted, and among how many they were."""
    times = admitted_times(probe)
    by_time = time_path(probe.rows, *times)
    if not by_time.pairs:
        return *sampled(by_time, 0), 0
    paths: list[Path] = [by_time, *(value_path(probe.rows, asked, by_time) for asked in probe.ranges)]
    path = min(paths, key=lambda path: path.pairs)
    partial, row = sampled(path, most)
    return *admitted(probe, None if path is by_time else times, partial, row), len(partial)


def _few(at: Ints, by: Ints, among: Iterable[tuple[int, Missed]]) -> Ints:
    """Return some of the positions `at`, so that Python is asked about few pairs for each conjunct that may be alone.

    Args:
        at: Positions of pairs.
        by: For every pair who refuses it.
        among: Who may, each with what counts for how many of its pairs Python is asked.
    """
    kept = []
    for who, missed in among:
        kept.append(at[by[at] == who][: max(0, limits().missed_asked - missed.asked)])
        missed.asked += len(kept[-1])
    return np.sort(np.concatenate(kept))
