"""Near-misses: pairs of a hop that one conjunct alone refuses, a few per conjunct, to be shown to users.

The tests of the hop itself see few of them: the access path of a conjunct leaves out what it refuses, and a scan
doesn't return it. So they are searched for beside the hop, among a bounded number of pairs that the access paths of the
other conjuncts propose. Results, counts and cached answers of the hop are not affected.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from watersmeet.arrays import Ints, Mask
from watersmeet.limits import limits
from watersmeet.predicate.model import Bound, ComparedValue, Conjunct
from watersmeet.probe.candidates import AccessPath, Probe, sample_pairs, time_path, value_path
from watersmeet.probe.evaluators.compared_values import format_plain, format_values, side_values_of
from watersmeet.probe.evaluators.real_comparisons import Comparisons
from watersmeet.probe.evaluators.sql import Sql
from watersmeet.probe.filters import admit_pairs, admit_times
from watersmeet.probe.hop_steps import Hop, Step
from watersmeet.probe.partials import Partials, concat
from watersmeet.probe.search import CandidateSearch

NOBODY = -1
"""The number of the conjunct that refuses a pair, if none has so far."""
CHUNK = 32
"""Probing a chunk costs at least as much as this many pairs."""


@dataclass(slots=True)
class ConjunctNearMisses:
    """The near-misses of one conjunct at one hop.

    Attributes:
        conjunct: The conjunct.
        pairs_examined: How many pairs were tested, or what cost as much.
        pairs_called: For how many of them Python predicates were called.
        rows: For each near-miss the references of its rows, by stream.
        values: For each near-miss the operands of the conjunct, as text, as far as they are known.
    """

    conjunct: Conjunct
    pairs_examined: int = 0
    pairs_called: int = 0
    rows: list[dict[int, int]] = field(default_factory=list)
    values: list[dict[ComparedValue, str]] = field(default_factory=list)

    def lacks(self, most: int) -> bool:
        """Tell whether to search for more."""
        return len(self.rows) < most and self.pairs_examined < limits().missed_pairs


@dataclass(frozen=True, slots=True)
class NearMissSearch:
    """Searches for the near-misses of a task's hops.

    Attributes:
        most: How many to find for each conjunct and hop; 0 for none.
        search: Proposes pairs.
        sql: Evaluates conjuncts in SQL and calls Python predicates, without counting calls or caching answers.
        comparisons: Evaluates conjuncts of real numbers.
        hops: The near-misses, by hop and by the text of the conjunct.
    """

    most: int
    search: CandidateSearch
    sql: Sql
    comparisons: Comparisons
    hops: dict[Hop, dict[str, ConjunctNearMisses]] = field(default_factory=lambda: defaultdict(dict))

    def look(self, block: Partials, step: Step, node: int | None) -> None:
        """Search for near-misses of a block that probes, and add them to `hops`; for the arguments see `Hops.hop`.

        It may call Python predicates. Tuples that make owed probes are left out.

        [!] It never raises: what is only shown must not stop a join.
        """
        if not self.most or step.role.old:
            return
        by_text, conjuncts = self.hops[step.hop], _conjuncts(step)
        for bounds, conjuncts_alike in _by_bounds(step, conjuncts).items():
            targets = [by_text.setdefault(conjunct.text, ConjunctNearMisses(conjunct)) for conjunct in conjuncts_alike]
            targets = [missed for missed in targets if missed.lacks(self.most)]
            try:
                self._look_for(targets, conjuncts, block, replace(step, bounds=bounds), node)
            except Exception:
                for missed in targets:
                    missed.pairs_examined = limits().missed_pairs

    def _look_for(
        self,
        targets: Sequence[ConjunctNearMisses],
        conjuncts: Sequence[Conjunct],
        block: Partials,
        step: Step,
        node: int | None,
    ) -> None:
        """Look for pairs of a block that only one conjunct refuses, and add them to what the targets have found."""
        if not targets:
            return
        most = limits().missed_pairs - min(missed.pairs_examined for missed in targets)
        pairs, examined = self._pairs(_spread(block, most), step, node, most)
        for missed in targets:
            missed.pairs_examined += examined
        if pairs is None:
            return
        for missed, at in self._sole_refusals(pairs, conjuncts, targets):
            rows = pairs.take(at[: self.most - len(missed.rows)])
            missed.values += self._format_compared(rows, missed.conjunct)
            missed.rows += [{stream: int(refs[one]) for stream, refs in rows.rows.items()} for one in range(len(rows))]

    def _format_compared(self, pairs: Partials, conjunct: Conjunct) -> list[dict[ComparedValue, str]]:
        """Return for each pair the operands of a conjunct as text."""
        sides = side_values_of(self.comparisons, conjunct, pairs) if len(pairs) else []
        texts = (format_values(sides, at, format_plain) for at in range(len(pairs)))
        return [dict(zip((side.compared for side in sides), of, strict=False)) for of in texts]

    # -- pairs

    def _pairs(self, block: Partials, step: Step, node: int | None, most: int) -> tuple[Partials | None, int]:
        """Return some pairs that windows and the arrival order admit, and how many were examined for that.

        The pairs are None if there are none; each chunk counts as at least CHUNK examined pairs.

        Args:
            block: The partial results.
            step: The hop, with the access paths to use.
            node: See `Hops.hop`.
            most: How many pairs to examine.
        """
        blocks, budget = [], most
        for probe in self.search.probes(self.search.prepare(block, step), node):
            partial, row, examined = _propose(probe, budget)
            budget -= max(CHUNK, examined)
            if len(partial):
                blocks.append(probe.extend(partial, row))
            if budget <= 0:
                break
        return concat(blocks) if blocks else None, max(CHUNK, most - budget)

    # -- tests

    def _sole_refusals(
        self, pairs: Partials, conjuncts: Sequence[Conjunct], targets: Sequence[ConjunctNearMisses]
    ) -> list[tuple[ConjunctNearMisses, Ints]]:
        """Return for each target the positions of the pairs that its conjunct alone refuses.

        A pair that is refused twice, or for which a conjunct has no answer, is dropped before the next test. Python is
        called for few pairs, and the targets count them.

        Args:
            pairs: The pairs.
            conjuncts: All conjuncts of the hop, those that call Python last.
            targets: The conjuncts whose near-misses are searched for.
        """
        by, at, has_called = np.full(len(pairs), NOBODY), np.arange(len(pairs)), False
        numbers = {missed.conjunct.text: number for number, missed in enumerate(targets)}
        for place, conjunct in enumerate(conjuncts):
            later = [numbers[one.text] for one in conjuncts[place:] if one.text in numbers]
            at = at if later else at[by[at] != NOBODY]
            if conjunct.calls and not has_called:
                among = [*enumerate(targets), *((NOBODY, targets[number]) for number in later[:1])]
                at, has_called = _limit_calls(at, by, among), True
            if not len(at):
                return []
            holds, denies = self._test(pairs.take(at), conjunct)
            first = denies & (by[at] == NOBODY) & (conjunct.text in numbers)
            by[at[first]] = numbers.get(conjunct.text, NOBODY)
            at = at[holds | first]
        return [(missed, at[by[at] == number]) for number, missed in enumerate(targets)]

    def _test(self, block: Partials, conjunct: Conjunct) -> tuple[Mask, Mask]:
        """Return where a conjunct certainly holds, and where it certainly doesn't; may call its Python predicates.

        If it raises, the first pairs of the block are tested again, by halves. Those that raise are in neither mask,
        nor are the others of the block.
        """
        try:
            return self._evaluate(block, conjunct)
        except Exception:  # whatever a function raises: the hop itself may never call it for these pairs
            holds, denies = np.zeros((2, len(block)), bool)
            count = min(len(block), max(2, limits().missed_asked)) if len(block) > 1 else 0
            for half in (slice(0, count // 2), slice(count // 2, count)) if count else ():
                part = block.slice(half.start, half.stop - half.start)
                holds[half], denies[half] = self._test(part, conjunct)
            return holds, denies

    def _evaluate(self, block: Partials, conjunct: Conjunct) -> tuple[Mask, Mask]:
        """Return where a conjunct is surely TRUE and where it surely isn't; may call its Python predicates."""
        unsure = np.empty(0, np.int64)
        if conjunct.near:
            possible = self.comparisons.possible(block, conjunct)
            unsure = self.comparisons.unsure(block, conjunct)
        elif conjunct.calls and not conjunct.raises:
            possible = self.sql.evaluate_calls(block, conjunct)
        else:
            possible = self.sql.decide(block, (conjunct,))
        if conjunct.unsure is not None:
            unsure = self.sql.unsure(block, conjunct)
        holds = np.zeros(len(block), bool)
        holds[possible] = True
        denies = ~holds
        holds[unsure] = False
        return holds, denies


def _conjuncts(step: Step) -> list[Conjunct]:
    """Return the conjuncts that are tested at a hop, those that call Python last."""
    conjuncts = (*step.sql, *step.near, *step.early_raising, *step.raising, *step.calls)
    return sorted(conjuncts, key=lambda conjunct: bool(conjunct.calls))


def _by_bounds(step: Step, conjuncts: Sequence[Conjunct]) -> dict[tuple[Bound, ...], list[Conjunct]]:
    """Return conjuncts by the access paths that keep what they refuse: those of the other conjuncts."""
    groups: dict[tuple[Bound, ...], list[Conjunct]] = defaultdict(list)
    for conjunct in conjuncts:
        groups[tuple(bound for bound in step.bounds if bound not in conjunct.bounds)].append(conjunct)
    return groups


def _spread(block: Partials, most: int) -> Partials:
    """Return a copy of at most `most` of a block's partial results, evenly spread."""
    count = min(len(block), most)
    return block.take(np.arange(count) * len(block) // count)


def _propose(probe: Probe, most: int) -> tuple[Ints, Ints, int]:
    """Return pairs of a probe that are admitted, and the number of pairs examined."""
    times = admit_times(probe)
    by_time = time_path(probe.rows, *times)
    if not by_time.pairs:
        return *sample_pairs(by_time, 0), 0
    paths: list[AccessPath] = [by_time, *(value_path(probe.rows, range_, by_time) for range_ in probe.ranges)]
    path = min(paths, key=lambda path: path.pairs)
    partial, row = sample_pairs(path, most)
    return *admit_pairs(probe, None if path is by_time else times, partial, row), len(partial)


def _limit_calls(at: Ints, by: Ints, among: Iterable[tuple[int, ConjunctNearMisses]]) -> Ints:
    """Return some of the positions `at`, so that Python is called for few pairs per conjunct, and count them.

    Args:
        at: Positions of pairs.
        by: For every pair the number of the conjunct that refuses it.
        among: The numbers of conjuncts, each with the near-misses that count its calls.
    """
    parts = []
    for number, missed in among:
        parts.append(at[by[at] == number][: max(0, limits().missed_asked - missed.pairs_called)])
        missed.pairs_called += len(parts[-1])
    return np.sort(np.concatenate(parts))
