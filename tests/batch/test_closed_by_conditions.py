"""Left, semi and anti joins without windows, closed by conditions on event times: on the engine, against the oracle.

The oracle knows nothing of the windows that follow from the conditions: it is told that nothing more will come, and
the engine is shown rows so late that everything before them must be closed.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from tests.batch.test_engine import strategies_of
from tests.budget import one_in, search
from watersmeet.placement import Central, Hash, Strategy
from watersmeet.predicate.model import Dialect, Gap
from watersmeet.predicate.parse import parse_where
from watersmeet.query.optional_streams import check_optional, derive_windows
from watersmeet.query.query import How, Query, StreamSpec
from watersmeet.query.windows import Window
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("bucket", pa.int64()), ("k", pa.int64())])
BUCKET, END = 6, 1000
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Form:
    """A condition on the times of two streams: as text, as Python, and by how much each may be later."""

    text: str
    holds: Callable[[int, int], bool]
    later: int
    earlier: int | None


FORMS = [
    Form("{1}.ts = {0}.ts", lambda a, b: a == b, 0, 0),
    Form("{1}.ts BETWEEN {0}.ts AND {0}.ts + INTERVAL 5 MICROSECONDS", lambda a, b: 0 <= b - a <= 5, 5, 0),
    Form("{1}.ts > {0}.ts AND {1}.ts - {0}.ts < INTERVAL 5 MICROSECONDS", lambda a, b: 0 < b - a < 5, 4, -1),
    Form("abs({0}.ts - {1}.ts) <= INTERVAL 3 MICROSECONDS", lambda a, b: abs(a - b) <= 3, 3, 3),
    Form("{0}.ts - INTERVAL 4 MICROSECONDS >= {1}.ts", lambda a, b: b <= a - 4, -4, None),
    Form("{0}.bucket = {1}.bucket", lambda a, b: a // BUCKET == b // BUCKET, BUCKET - 1, BUCKET - 1),
    Form("{1}.bucket <= {0}.bucket + 1", lambda a, b: b // BUCKET <= a // BUCKET + 1, 2 * BUCKET - 1, None),
]


def query_of(form: Form, hows: tuple[How, ...], delays: list[int], keyed: bool) -> Query:
    """Return a join of `a` with each of the others by a form and, if it is keyed, a key."""
    specs = tuple(StreamSpec(name, SCHEMA, 1, Window(), delay) for name, delay in zip("abc", delays, strict=False))
    conjuncts = []
    for at in range(1, len(specs)):
        text = form.text.format("a", specs[at].name) + (f" AND a.k = {specs[at].name}.k" if keyed else "")
        found = parse_where(text, [(spec.name, spec.schema) for spec in specs], (), Dialect())
        gaps = [Gap(at, 0, form.later)] + ([] if form.earlier is None else [Gap(0, at, form.earlier)])
        conjuncts += [replace(found[0], gaps=tuple(gaps)), *found[1:]]
    made = derive_windows(Query(specs, tuple(conjuncts), how=hows))
    check_optional(made, streaming=True, spilling=False)
    return made


def wanted_of(case: dict[str, Any], arrivals: list[oracle.Arrival]) -> Counter[Any]:
    form, hows, names = case["form"], case["hows"], "abc"[: len(case["hows"])]

    def holds(name: str, rows: Mapping[str, Row]) -> bool:
        one, two = rows["a"], rows[name]
        keyed = not case["keyed"] or (one["k"] is not None and one["k"] == two["k"])
        return bool(form.holds(one["ts"], two["ts"])) and keyed

    streams = [oracle.Stream(name, oracle.Unbounded(), case["delays"][at]) for at, name in enumerate(names)]
    how: Any = {name: hows[at] for at, name in enumerate(names) if hows[at] != "inner"}

    def where(rows: Mapping[str, Row]) -> bool:
        return all(holds(name, rows) for name in rows if name != "a")

    on: Any = {name: lambda rows, name=name: holds(name, rows) for name in how}
    return before_the_end(oracle.join(streams, arrivals, where, how=how, on=on, ended=True).results)


def before_the_end(results: Counter[Any]) -> Counter[Any]:
    return Counter({key: count for key, count in results.items() if key[1] < END})


def run_case(case: dict[str, Any], folder: str) -> tuple[Run, Counter[Any]]:
    names, arrivals, number = "abc"[: len(case["hows"])], list[oracle.Arrival](), 0
    run = Run(query_of(case["form"], case["hows"], case["delays"], case["keyed"]), Store(folder))
    ends = [[(name, END + 100 * at, None) for name in names] for at in range(3)]
    for batch, rows in enumerate([*case["batches"], *ends]):
        made = []
        for name, ts, k in rows:
            row = {"id": number, "ts": ts, "bucket": ts // BUCKET, "k": k}
            number += 1
            made.append((names.index(name), row))
            arrivals.append(oracle.Arrival(batch, name, ts, content_key(row), row))
        strategy = case["strategies"][batch % len(case["strategies"])]
        run.step(strategy, made, case["exchanges"][batch % len(case["exchanges"])])
    return run, wanted_of(case, arrivals)


HOWS: list[tuple[How, ...]] = [("inner", "left"), ("inner", "semi"), ("inner", "anti")]
HOWS += [("inner", "left", "anti"), ("inner", "inner", "left"), ("inner", "inner", "anti")]


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    hows = draw(st.sampled_from(HOWS))
    form = draw(st.sampled_from(FORMS if "inner" not in hows[1:] else [f for f in FORMS if f.earlier is not None]))
    row = st.tuples(st.sampled_from("abc"[: len(hows)]), st.integers(-4, 20), st.sampled_from([0, 1, None]))
    batches = draw(st.lists(st.lists(row, max_size=14), min_size=1, max_size=5))
    keyed = draw(st.booleans())
    strategies: list[Strategy] = draw(st.lists(strategies_of, min_size=1, max_size=2))
    if not keyed and any(isinstance(strategy, Hash) for strategy in strategies):
        strategies = [Central()]
    return {
        "form": form,
        "hows": hows,
        "keyed": keyed,
        "batches": [[(n, 7 * b + t, k) for n, t, k in rows] for b, rows in enumerate(batches)],
        "delays": [draw(st.integers(0, 12)) for _ in hows],
        "strategies": strategies,
        "exchanges": draw(st.lists(st.sampled_from(["local", "shuffle"]), min_size=1, max_size=2)),
    }


@pytest.mark.long
@search(40)
@given(cases())
def test_what_conditions_close_is_what_has_no_partner(case: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run, wanted = run_case(case, folder)
        assert before_the_end(run.results) == wanted


@pytest.mark.long
@pytest.mark.parametrize("form", one_in(2, FORMS), ids=lambda form: form.text)
def test_results_without_a_partner_come_and_state_goes(form: Form, tmp_path: Path) -> None:
    """Every form closes: nothing waits for the end of the streams."""
    rows = [[(n, 20 * b + t, b % 2 if n == "a" else 0) for n in "ab" for t in range(20)] for b in range(8)]
    case = {"form": form, "hows": ("inner", "anti"), "keyed": True, "batches": rows, "delays": [2, 2]}
    run, wanted = run_case(case | {"strategies": [Central()], "exchanges": ["local"]}, str(tmp_path))
    assert before_the_end(run.results) == wanted and wanted
    if form.earlier is not None:
        assert max(p["distinctRows"] for p in run.progress[3:]) <= 4 * 40


def test_a_window_that_is_too_short_would_lose_results(tmp_path: Path) -> None:
    """The comparison above can fail."""
    form = replace(FORMS[1], later=3)
    batches = [[("a", 10, 0)], [("b", 15, 0)]]
    case = {"form": form, "hows": ("inner", "anti"), "keyed": False, "batches": batches, "delays": [9, 9]}
    run, wanted = run_case(case | {"strategies": [Central()], "exchanges": ["local"]}, str(tmp_path))
    assert before_the_end(run.results) != wanted


@pytest.mark.long
@pytest.mark.parametrize("raises", [False, True])
def test_buckets_let_the_state_of_inner_joins_go(tmp_path: Path, raises: bool) -> None:
    """Not where a condition may raise: what is gone can't be asked."""
    form = FORMS[5]
    made = query_of(form, ("inner", "anti"), [2, 2], keyed=False)
    specs = tuple(replace(spec, window=Window(), derived=False) for spec in made.streams)
    conjuncts = tuple(replace(conjunct, raises=raises) for conjunct in made.conjuncts)
    run, arrivals = Run(Query(specs, conjuncts), Store(str(tmp_path))), []
    for batch in range(10):
        rows = [
            (n, {"id": 0, "ts": 20 * batch + t, "bucket": (20 * batch + t) // 6, "k": 0})
            for n in "ab"
            for t in range(20)
        ]
        arrivals += [oracle.Arrival(batch, name, row["ts"], content_key(row), row) for name, row in rows]
        run.step(Central(), [("ab".index(name), row) for name, row in rows])
    streams = [oracle.Stream(name, oracle.Unbounded(), 2) for name in "ab"]
    wanted = oracle.join(streams, arrivals, lambda rows: bool(form.holds(rows["a"]["ts"], rows["b"]["ts"])))
    assert run.results == wanted.results
    assert (run.progress[-1]["distinctRows"] == 400) is raises
    assert raises or max(p["distinctRows"] for p in run.progress) <= 100
