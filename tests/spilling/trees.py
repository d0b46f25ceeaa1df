"""Trees of joins without Spark: how they are made, what brute force makes of them, and what is watched at each step."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc

from tests.batch.extremes import EXTREMES
from tests.batch.test_engine import ENGINE_WINDOW, ORDERINGS, strategies_of
from watersmeet.limits import limited
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.query.query import OWN_TIME, RESULT_TIME, NestedTimes, Output, Query, StreamSpec
from watersmeet.query.windows import FOREVER, NEVER, Closed
from watersmeet.runtime.commit_protocol import Publish, ResultsPublished
from watersmeet.spilling.interface import Spilling
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

Shape = Any
"""A leaf's name, or the shapes of a join's streams."""
LATEST = 1 << 40
SHAPES: list[Shape] = [
    (("a", "b"), "c"),
    ("c", ("a", "b")),
    ((("a", "b"), "c"), "d"),
    ("d", ("c", ("a", "b"))),
    (("a", "b"), ("c", "d")),
    (("a", "b"), "c", "d"),
    (("a", "b", "c"), "d"),
]
CONDITIONS: dict[str, Any] = {
    "{0}.k = {1}.k": lambda p, q: p["k"] == q["k"],
    "abs({0}.x - {1}.x) < 2": lambda p, q: abs(p["x"] - q["x"]) < 2,
    "{0}.x <= {1}.x": lambda p, q: p["x"] <= q["x"],
    "{0}.at < {1}.at": lambda p, q: p["at"] < q["at"],
    "{0}.at > {1}.at": lambda p, q: p["at"] > q["at"],
}
"""The last two let rows go by time though no window ends."""


def leaves(shape: Shape) -> str:
    """Return the names of the leaves."""
    return shape if isinstance(shape, str) else "".join(map(leaves, shape))


def joins(shape: Shape, path: str = "j") -> Iterator[tuple[str, Shape]]:
    """Yield the joins of a tree with their paths, inner ones first."""
    for at, part in enumerate(shape):
        if not isinstance(part, str):
            yield from joins(part, f"{path}_{at}")
    yield path, shape


def is_leaf(part: Shape) -> bool:
    return isinstance(part, str)


def leaf_schema(name: str) -> pa.Schema:
    kinds = [(f"id_{name}", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("x", pa.int64()), ("k", pa.string())]
    return pa.schema(kinds)


@dataclass(frozen=True)
class Setting:
    """How the joins of a tree are: windows by path and stream, delays of leaves, conditions and outputs by path."""

    shape: Shape
    windows: Mapping[str, Sequence[oracle.Window]]
    delays: Mapping[str, int]
    where: Mapping[str, Sequence[str]]
    shown: Mapping[str, int] = field(default_factory=dict)

    def queries(self) -> dict[str, Query]:
        """Return the joins by path, inner ones first."""
        made: dict[str, Query] = {}
        for path, shape in joins(self.shape):
            made[path] = self._query(path, shape, made)
        return made

    def _query(self, path: str, shape: Shape, made: Mapping[str, Query]) -> Query:
        specs = tuple(self._spec(path, at, part, made) for at, part in enumerate(shape))
        named = zip(self.where[path], specs, specs[1:], strict=False)
        text = " AND ".join(condition.format(one.name, two.name) for condition, one, two in named)
        conjuncts = parse_where(text, [(s.name, s.schema) for s in specs], (), Dialect())
        return Query(specs, conjuncts, text, self._outputs(path, specs) if path != "j" else ())

    def _outputs(self, path: str, specs: Sequence[StreamSpec]) -> tuple[Output, ...]:
        ids = [
            Output(name, Column(at, field))
            for at, spec in enumerate(specs)
            for field, name in enumerate(spec.schema.names)
            if name.startswith("id_")
        ]
        which = self.shown.get(path, 0)
        values = [Output(name, Column(which, specs[which].schema.names.index(name))) for name in ("x", "k")]
        return (*ids, Output("at", RESULT_TIME), *values)

    def _spec(self, path: str, at: int, part: Shape, made: Mapping[str, Query]) -> StreamSpec:
        given = self.windows[path][at]
        window = ENGINE_WINDOW[type(given)](given)
        if is_leaf(part):
            return StreamSpec(part, leaf_schema(part), 1, window, self.delays[part])
        schema = made[f"{path}_{at}"].output_schema
        return StreamSpec(
            leaves(part), schema, schema.names.index("at"), window, 0, nested=NestedTimes(OWN_TIME, delayed=False)
        )


# -- brute force


@dataclass
class Expected:
    """What brute force makes of a join of a tree.

    Attributes:
        rows: Its results, as rows of its outputs, each with the batch of its last-arrived member.
        late: The ids of late rows, by stream.
        watermarks: Its watermark after each batch.
    """

    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    late: Counter[Any] = field(default_factory=Counter)
    watermarks: list[int | None] = field(default_factory=list)

    def results(self) -> Counter[Any]:
        """Return its results by the ids of the leaves' rows and their times."""
        return Counter(known(row) for _, row in self.rows)


def known(row: Mapping[str, Any]) -> Any:
    """Return what a result is known by: the ids of the leaves' rows, and its time."""
    return frozenset((name, value) for name, value in row.items() if name.startswith("id_")), row["at"]


def brute_force(setting: Setting, batches: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]]) -> dict[str, Expected]:
    """Return what must come of each join of a tree, by path.

    A join's watermark is the least of its streams', an inner join's its own; what is late in one is no member there.
    """
    found: dict[str, Expected] = {}
    for path, shape in joins(setting.shape):
        inner = {at: found[f"{path}_{at}"] for at, part in enumerate(shape) if not is_leaf(part)}
        found[path] = _joined(setting, path, shape, inner, batches)
    return found


def _joined(
    setting: Setting,
    path: str,
    shape: Shape,
    inner: Mapping[int, Expected],
    batches: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]],
) -> Expected:
    own, latest, mark = Expected(), dict[str, int](), None
    arrivals = [_arrival(batch, leaves(shape[at]), row) for at, part in inner.items() for batch, row in part.rows]
    for batch, given in enumerate(batches):
        for name in (part for part in shape if is_leaf(part)):
            for row in given.get(name, ()):
                if row["at"] is None:
                    continue
                latest[name] = max(row["at"], latest.get(name, row["at"]))
                if mark is not None and row["at"] < mark:
                    own.late[f"id_{name}", row[f"id_{name}"]] += 1
                else:
                    arrivals.append(_arrival(batch, name, row))
        marks = [
            inner[at].watermarks[batch] if at in inner else _behind(latest.get(part), setting.delays.get(part))
            for at, part in enumerate(shape)
        ]
        lowest = None if None in marks else max(NEVER, min(m for m in marks if m is not None))
        mark = lowest if mark is None else max(mark, lowest if lowest is not None else mark)
        own.watermarks.append(mark)
    own.rows = list(_results(setting, path, shape, arrivals))
    return own


def _behind(latest: int | None, delay: int | None) -> int | None:
    return None if latest is None or delay is None else latest - delay


def _arrival(batch: int, name: str, row: Mapping[str, Any]) -> oracle.Arrival:
    return oracle.Arrival(batch, name, row["at"], content_key(row), {**row, "id": (batch, tuple(sorted(row.items())))})


def _results(
    setting: Setting, path: str, shape: Shape, arrivals: list[oracle.Arrival]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the results of a join of rows none of which is late, as rows of its outputs."""
    names = [leaves(part) for part in shape]
    streams = [oracle.Stream(n, w, LATEST) for n, w in zip(names, setting.windows[path], strict=True)]

    def holds(rows: Mapping[str, Mapping[str, Any]]) -> bool:
        pairs = zip(setting.where[path], names, names[1:], strict=False)
        return all(CONDITIONS[condition](rows[one], rows[two]) for condition, one, two in pairs)

    for (members, time), times in oracle.join(streams, arrivals, holds).results.items():
        rows = [dict(row) for _, row in members]
        ids = {name: value for row in rows for name, value in row.items() if name.startswith("id_")}
        which = rows[setting.shown.get(path, 0)]
        for _ in range(times):
            yield max(batch for batch, _ in members), {**ids, "at": time, "x": which["x"], "k": which["k"]}


# -- the engine


@dataclass
class TreeRun(Run):
    """A run whose results are known by the ids of the leaves' rows, and in which the settled marks are watched.

    Attributes:
        marks: The highest settled mark of each join so far, by path.
        watermarks: The watermark of each join after each batch, rounds left out.
    """

    marks: dict[str, int] = field(default_factory=dict)
    watermarks: dict[str, list[int | None]] = field(default_factory=dict)
    _new: list[int] = field(default_factory=list)
    _seen: dict[str, int] = field(default_factory=dict)

    def publish(self, action: Publish) -> ResultsPublished:
        self._new = []
        return super().publish(action)

    def add(self, rows: pa.RecordBatch) -> None:
        columns: dict[str, list[Any]] = {"at": rows.column("_time").cast(pa.int64()).to_pylist()}
        for stream in self.query.streams:
            for name in stream.schema.names:
                if name.startswith("id_"):
                    columns[name] = pc.struct_field(rows.column(stream.name), name).to_pylist()
        self.results.update(
            known(dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)
        )
        self._new += columns["at"]

    def watch(self) -> None:
        """Check what holds after each step: no result below the mark that was settled before it, and marks rise."""
        assert self.state is not None
        for path, state in states(self.state):
            made = self.within.get(path, [])
            times = self._new if path == "j" else [row["at"] for _, row in made[self._seen.get(path, 0) :]]
            self._seen[path] = len(made)
            before = self.marks.get(path)
            assert before is None or min(times, default=before) >= before, f"{path}: a result below the settled mark"
            if state.settled is not None:
                assert state.watermark is not None and state.settled <= state.watermark
                assert before is None or before <= state.settled
                self.marks[path] = state.settled
            else:
                assert before is None
            if not self.progress[-1]["round"]:
                self.watermarks.setdefault(path, []).append(state.watermark)
            else:
                assert (self.watermarks[path] or [None])[-1] == state.watermark

    def late(self) -> Counter[Any]:
        """Return the late rows of leaves; of inner joins there must be none."""
        found = [row for (kind, _), rows in self.sides.items() if kind == "late" for _, row in rows]
        ids = [[(name, value) for name, value in row.items() if name.startswith("id_")] for row in found]
        assert all(len(members) == 1 for members in ids), "a result of an inner join was late"
        return Counter(members[0] for members in ids)


def states(state: Manifest, path: str = "j") -> Iterator[tuple[str, Manifest]]:
    """Yield the states of the joins of a tree by path."""
    yield path, state
    for at, part in state.inner.items():
        yield from states(part, f"{path}_{at}")


def started(setting: Setting, folder: str, spilling: Spilling | None) -> TreeRun:
    queries = setting.queries()
    return TreeRun(queries.pop("j"), Store(folder), inner=queries, spilling=spilling)


def given(shape: Shape, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[tuple[int, Any]]]:
    """Return the rows of a batch by the paths of the joins whose streams they are of."""
    return {
        path: [(at, row) for at, part in enumerate(parts) if is_leaf(part) for row in rows.get(part, ())]
        for path, parts in joins(shape)
    }


def stepped(run: TreeRun, case: Mapping[str, Any], at: int, lulls: int = 0) -> None:
    """Run a batch of a case, and rounds after it."""
    rows = given(case["setting"].shape, case["batches"][at])
    how = case["strategies"][at], case["exchanges"][at], case["orderings"][at]
    with limited(**case["limits"][at]):
        run.step(how[0], rows.pop("j"), how[1], how[2], within=rows)
        run.watch()
        for _ in range(lulls):
            if run.run_round(*how):
                run.watch()


def settled(run: TreeRun) -> None:
    """Pay all that is owed."""
    while run.run_round(Central(), all=True):
        run.watch()


# -- cases

by_time = st.one_of(
    st.integers(1, 10).map(oracle.Sliding),
    st.builds(oracle.Hopping, st.integers(1, 10), st.integers(1, 10), st.sampled_from(get_args(Closed))),
    st.just(oracle.Unbounded()),
)
any_window = st.one_of(by_time, by_time, st.integers(1, 5).map(oracle.Count))


@st.composite
def settings_of(draw: st.DrawFn, shapes: Sequence[Shape]) -> Setting:
    shape = draw(st.sampled_from(shapes))
    windows = {
        path: [draw(any_window if all(map(is_leaf, parts)) else by_time) for _ in parts] for path, parts in joins(shape)
    }
    where = {path: [draw(st.sampled_from(sorted(CONDITIONS))) for _ in parts[1:]] for path, parts in joins(shape)}
    shown = {path: draw(st.integers(0, len(parts) - 1)) for path, parts in joins(shape)}
    return Setting(shape, windows, {name: draw(st.integers(0, 6)) for name in leaves(shape)}, where, shown)


@st.composite
def tree_cases(draw: st.DrawFn, shapes: Sequence[Shape] = SHAPES, most: int = 5) -> dict[str, Any]:
    """Short windows, and in the end a time that no window reaches; times are any that a timestamp holds."""
    setting = draw(settings_of(shapes))
    names = leaves(setting.shape)
    rng, lacking = random.Random(draw(st.integers(0, 1 << 30))), draw(st.sampled_from([0.0, 0.1]))
    drawn: list[list[tuple[str, int | None, int, str]]] = [
        [
            (name, None if rng.random() < lacking else rng.randint(-3, 7), rng.randint(0, 3), rng.choice("pq"))
            for name in names
            for _ in range(rng.randint(0, most))
        ]
        for _ in range(draw(st.integers(2, 4)))
    ]
    number, batches = 0, list[dict[str, list[dict[str, Any]]]]()
    start = draw(st.sampled_from([0, 0, 0, 0, NEVER + 3, FOREVER - 300]))
    if draw(st.booleans()):
        drawn.append([(name, 200, 0, "p") for name in names])
    for at, rows in enumerate(drawn):
        batches.append({})
        for name, ts, x, k in rows:
            number += 1
            made = {f"id_{name}": number, "at": None if ts is None else start + 5 * at + ts, "x": x, "k": k}
            batches[-1].setdefault(name, []).append(made)
    return {
        "setting": setting,
        "batches": batches,
        "strategies": [draw(strategies_of) for _ in batches],
        "exchanges": [draw(st.sampled_from(["local", "shuffle"])) for _ in batches],
        "orderings": [draw(st.sampled_from(ORDERINGS)) for _ in batches],
        "limits": [draw(st.sampled_from(EXTREMES)) for _ in batches],
        "lulls": [draw(st.integers(0, 2)) for _ in batches],
    }
