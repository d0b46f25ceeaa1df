"""What the paper on ATR and CTR compares them with, for benches only.

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 5: both without their
optimisations, which are strategies like any other, and semantics-unaware routing, which is not. The executor probes
every chunk at one of its owners under any placement, so a tuple that joins only what lies on its own node can't be
expressed; it is simulated over the same input.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.common import STREAMS, WINDOW, Task
from bench.joins.references import numpy_band
from watersmeet import ATR, CTR
from watersmeet.arrays import Ints
from watersmeet.cost.load import NodeLoads
from watersmeet.placement.base import Owners
from watersmeet.placement.ctr import CtrLayout, CtrPlacement
from watersmeet.placement.set_cover import Holdings
from watersmeet.state.manifest.view import ANYWHERE, StateView


def atr_unoptimised(nodes: int, segment: str) -> ATR:
    """Return ATR that never changes its master, the first stream, nor its segment length, whatever the rates."""
    return ATR(nodes, segment=segment, master=0)


@dataclass(frozen=True, slots=True)
class CtrUnoptimised(CTR):
    """CTR that covers the tuples to join by nodes drawn at random; all else is as in CTR."""

    seed: int = 0

    def holdings(self, state: StateView) -> Holdings:
        """Return what each node holds, to be covered at random."""
        return RandomHoldings(state, self.nodes, Random(f"{self.seed} {len(state.chunks)} {state.streams}"))

    def plan(self, state: StateView) -> CtrLayout:
        """Return CTR's layout, in which partial results go to their covers whatever is where they are."""
        planned = CTR.plan(self, state)
        ctr = planned.placement
        return replace(planned, placement=RandomPlacement(ctr.nodes, ctr.lengths, ctr.table, ctr.routes))


@dataclass(frozen=True, slots=True)
class RandomPlacement(CtrPlacement):
    """A partial result goes to the nodes of its route, even if what it has to probe is where it is."""

    def visit(self, group: int, target: int, owners: Sequence[int], here: int) -> int:
        """Return the first node of the cover that has the chunk."""
        return CtrPlacement.visit(self, group, target, owners, ANYWHERE)


class RandomHoldings(Holdings):
    """What each node holds, covered by nodes in random order: neither loads nor the nodes of the hop before count."""

    def __init__(self, state: StateView, nodes: int, dice: Random) -> None:
        super().__init__(state, nodes)
        self._dice = dice

    def cover(self, stream: int, before: Owners, node_loads: NodeLoads) -> tuple[Owners, int]:
        """Return nodes that hold all of a stream, as the dice have them."""
        uncovered, picks = set(self.sets[stream]), []
        holders = sorted(set(chain.from_iterable(uncovered)))
        for node in self._dice.sample(holders, len(holders)):
            covered = {owners for owners in uncovered if node in owners}
            uncovered -= covered
            picks += [node] if covered else []
        return tuple(picks), len(set(picks).difference(before))


# -- semantics-unaware routing


@dataclass(frozen=True, slots=True)
class Unaware:
    """What semantics-unaware routing finds.

    Attributes:
        nodes: How many nodes.
        results: How many results there are.
        found: Those whose members all came to one node.
    """

    nodes: int
    results: int
    matches: int


def unaware(files: Path, out: Path, epsilon: float, nodes: int) -> Unaware:
    """Return what the band join of three streams finds when each tuple is kept on and joined at one node alone."""
    task = Task(files, out, epsilon)
    numpy_band(task)
    results = pq.read_table(task.results)
    inputs = {name: pq.read_table(files / name).sort_by("ts") for name in STREAMS}
    copies = diffuse({name: rows["ts"].cast(pa.int64()).to_numpy() for name, rows in inputs.items()}, nodes)
    at = [_by_id(inputs[name]["id"].to_numpy(), copies[name])[results[f"{name}_id"].to_numpy()] for name in STREAMS]
    return Unaware(nodes, len(results), int(np.count_nonzero((at[0] == at[1]) & (at[1] == at[2]))))


def _by_id(ids: Ints, nodes: Ints) -> Ints:
    by_id = np.empty_like(nodes, shape=int(ids.max()) + 1)
    by_id[ids] = nodes
    return by_id


def diffuse(times: Mapping[str, Ints], nodes: int) -> dict[str, Ints]:
    """Return for each tuple the node that was the least loaded when it came: the one that had looked at fewest pairs.

    Args:
        times: The event times of each stream, in order.
        nodes: How many nodes there are.
    """
    arrivals = sorted((t, name, at) for name, stream in times.items() for at, t in enumerate(stream.tolist()))
    copies = {name: np.empty(len(stream), np.int64) for name, stream in times.items()}
    windows: list[deque[int]] = [deque() for _ in range(nodes)]
    loads = [(0, node) for node in range(nodes)]
    for time, name, at in arrivals:
        load, node = loads[0]
        copies[name][at] = node
        while windows[node] and time - windows[node][0] >= WINDOW * 1_000_000:
            windows[node].popleft()
        heapq.heapreplace(loads, (load + 1 + len(windows[node]), node))
        windows[node].append(time)
    return copies
