"""Random left, semi, anti and as-of joins on the engine: what why says of tuples is what the oracle says."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import event, given

from tests.batch import test_asof
from tests.batch.test_asof import query_of
from tests.batch.test_optional import cases, conditions_of, steady
from tests.budget import search
from tests.observe.why.test_why_joins import DUCK, put_out
from watersmeet.batch.plan import GIVEN_ORDER
from watersmeet.limits import limited
from watersmeet.observe.why.answer import Answer, Combination
from watersmeet.observe.why.join_state import JoinState
from watersmeet.observe.why.output_files import OutputFiles, ResultFolder
from watersmeet.observe.why.question import parse_question
from watersmeet.observe.why.state_evidence import StateEvidence
from watersmeet.observe.why.why_pair import answer_question
from watersmeet.predicate.model import Column
from watersmeet.state.store.store import Store
from watersmeet.testing import oracle
from watersmeet.testing.run import Run, content_key

Ids = Mapping[str, int]


@dataclass
class Observed:
    """A join that has run.

    Attributes:
        case: What was made.
        run: The join.
        folder: Where its outputs are.
        arrivals: All rows.
        batch_of: The batch of each result.
        has_results: Whether results can be looked up.
    """

    case: dict[str, Any]
    run: Run
    folder: Path
    arrivals: list[oracle.Arrival]
    batch_of: dict[tuple[tuple[Any, ...], int], int]
    has_results: bool

    @property
    def state(self) -> JoinState:
        assert self.run.state is not None
        return JoinState(self.run.query, self.run.store, self.run.state)

    def why(self, ids: Ids) -> Answer:
        """Ask about rows by all their columns: state does not keep the ids of streams that results don't show."""
        rows = {(arrival.stream, arrival.row["id"]): arrival.row for arrival in self.arrivals}
        return self.ask(**{name: self._by_values(rows[name, id]) for name, id in ids.items()})

    def ask(self, **values_by_stream: Any) -> Answer:
        names, query = [stream.name for stream in self.run.query.streams], self.run.query
        sides = {"late": {name: str(self.folder / "late" / name) for name in names}}
        shows = {Column(at, 0): (f"{name}_id",) for at, name in enumerate(names) if at not in query.hidden_streams}
        sink = ResultFolder(str(self.folder / "out"), "parquet") if self.has_results else None
        outputs = OutputFiles("me", sides, sink, shows)
        return answer_question(
            StateEvidence(self.state, DUCK, float, outputs, self.run.progress),
            parse_question(query, values_by_stream, DUCK),
        )

    @staticmethod
    def _by_values(row: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, "ts": EPOCH + timedelta(microseconds=row["ts"])}

    def ids_by_stream(self) -> dict[str, list[int]]:
        """For each stream the rows that can be told apart in state."""
        ids_by_stream: dict[str, list[int]] = {}
        for at, stream in enumerate(self.run.query.streams):
            fields = [stream.schema.names[field] for field in self.state.columns(at)]
            own = [arrival.row for arrival in self.arrivals if arrival.stream == stream.name]
            alike = Counter(tuple(row[name] for name in fields) for row in own)
            ids_by_stream[stream.name] = [row["id"] for row in own if alike[tuple(row[name] for name in fields)] == 1]
        return ids_by_stream


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run_case_of(case: dict[str, Any], folder: Path, has_results: bool) -> Observed:
    """Run a case, and write its late rows and, if they are to be told, its results, as a query does."""
    run, names = Run(query_of(case), Store(str(folder / "store"))), list(case["how"])
    arrivals: list[oracle.Arrival] = []
    batch_of: dict[tuple[tuple[Any, ...], int], int] = {}
    for at, rows in enumerate(case["batches"]):
        rows = []
        for name, ts, x, k in rows:
            row = {"id": len(arrivals), "ts": ts, "x": x, "k": k}
            rows.append((names.index(name), row))
            arrivals.append(oracle.Arrival(at, name, ts, content_key(row), row))
        with limited(**case["limits"][at]):
            run.step(case["strategies"][at], rows, case["exchanges"][at], case["orderings"][at] or GIVEN_ORDER)
        new = [result for result in run.results if result not in batch_of]
        batch_of |= dict.fromkeys(new, at)
        columns = {f"{name}_id": pa.array([ids[n] for ids, _ in new], pa.int64()) for n, name in enumerate(names)}
        (folder / "out").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), folder / "out" / f"part-b{at}-me-run-0.parquet")
    put_out(run, folder)
    return Observed(case, run, folder, arrivals, batch_of, has_results)


@dataclass(frozen=True)
class Record:
    """A combination of the required streams by the oracle: ids of members and partners, whether it is closed."""

    members: Ids
    partners: Mapping[str, set[int]]
    closed: bool


class Truth:
    """What the oracle knows of a case."""

    def __init__(self, observed: Observed) -> None:
        streams, self.names = observed.case["streams"], list(observed.case["how"])
        where, self.how, on = conditions_of(observed.case)
        self.as_of = [name for name, how in self.how.items() if isinstance(how, oracle.AsOf)]
        intake = oracle._Intake(streams, None)
        for batch in sorted({arrival.batch for arrival in observed.arrivals}):
            intake.take(batch, [arrival for arrival in observed.arrivals if arrival.batch == batch], set())
        outer = oracle._Outer(streams, intake, self.how, on, False)
        self.results = Counter(outer.results(where))
        self.late = {arrival.row["id"] for arrival in intake.outcome.late}
        required = [stream.name for stream in outer.required]
        join = oracle._Join(outer.required, [intake.members[name] for name in required])
        self.records = []
        for combination in join.matches(where):
            by_name = dict(zip(required, combination, strict=True))
            partners_found = {
                s.name: outer.shown(s, by_name) if s.name in self.as_of else outer.partners(s, by_name)
                for s in outer.optional
            }
            partners = {name: {p.row["id"] for p in rows if p is not None} for name, rows in partners_found.items()}
            ids = {name: member.row["id"] for name, member in by_name.items()}
            self.records.append(Record(ids, partners, outer.closed(by_name)))

    def having(self, ids: Ids) -> Iterator[Record]:
        """The combinations that have some tuples, as members or as partners."""
        for record in self.records:
            own = {**{name: {id} for name, id in record.members.items()}, **record.partners}
            if all(id in own[name] for name, id in ids.items()):
                yield record

    def results_of(self, record: Record, ids: Ids) -> Counter[Any]:
        """The results of a combination that have the tuples of left and as-of streams among some."""
        visible = {name for name, how in self.how.items() if how == "left" or name in self.as_of}
        expected = {**record.members, **{name: id for name, id in ids.items() if name in visible}}
        places = {self.names.index(name): id for name, id in expected.items()}
        return Counter({r: n for r, n in self.results.items() if all(r[0][at] == id for at, id in places.items())})

    def joined(self, ids: Ids) -> tuple[bool | None, Counter[Any]]:
        """Whether results have some tuples, or are there because of them; None if that is open. And these results."""
        if any(self.how.get(name) == "anti" for name in ids):
            return False, Counter()
        records = list(self.having(ids))
        results = sum((self.results_of(record, ids) for record in records), Counter[Any]())
        anti = [name for name, how in self.how.items() if how == "anti"]
        open_ = any(not record.closed and not any(record.partners[name] for name in anti) for record in records)
        return (True if results else None if open_ else False), results


def check(case: dict[str, Any], folder: Path, has_results: bool) -> None:
    hows = {name: "left" if how == "full" else how for name, how in case["how"].items()}  # asked about as left joins
    observed = run_case_of(case | {"twins": False, "how": hows}, folder, has_results)
    if observed.run.state is None:
        return
    truth, dice, ids_by_stream = Truth(observed), Random(len(observed.arrivals)), observed.ids_by_stream()
    assert observed.run.results == truth.results
    required = [name for name in ids_by_stream if name not in truth.how]
    whole = list(product(*(ids_by_stream[name] for name in required)))
    questions: list[Ids] = [dict(zip(required, ids, strict=True)) for ids in dice.sample(whole, min(6, len(whole)))]
    likely = [record.members for record in dice.sample(truth.records, min(8, len(truth.records)))]
    questions += [ids for ids in likely if all(id in ids_by_stream[name] for name, id in ids.items())]
    for ids in questions:
        judge(observed, truth, ids)
        for name in truth.how:
            partners = {id for record in truth.having(ids) for id in record.partners[name]}
            others = [
                *dice.sample(ids_by_stream[name], min(2, len(ids_by_stream[name]))),
                *(partners & {*ids_by_stream[name]}),
            ][:3]
            for id in others:
                judge(observed, truth, {n: {**ids, name: id}[n] for n in ids_by_stream if n in ids or n == name})
    everything = [(name, id) for name, ids_of_stream in ids_by_stream.items() for id in ids_of_stream]
    for _ in range(8 if everything else 0):
        some_of_them = dict(dice.sample(everything, min(dice.choice([1, 1, 2]), len(everything))))
        judge(observed, truth, {name: some_of_them[name] for name in ids_by_stream if name in some_of_them})


def judge(observed: Observed, truth: Truth, ids: Ids) -> None:
    """Compare what is said of tuples with what the oracle knows."""
    answer = observed.why(ids)
    assert str(answer)
    (combination,) = answer.combinations
    for status, id in zip(answer.tuples, ids.values(), strict=True):
        assert (status.fate == "late") == (id in truth.late)
        assert status.fate != "never arrived"
    joined, results = truth.joined(ids)
    event(f"{joined} {answer.joined}")
    assert answer.joined == joined or (answer.joined is None and excused(observed, truth, ids, combination)), str(
        answer
    )
    if combination.refused_by is not None:
        assert not any(truth.having(ids))
    if combination.joined and combination.results is not None and not missing(observed, truth, ids):
        assert combination.results == results.total()
    if combination.joined and combination.batches is not None:
        first, last = combination.batches
        assert first <= min(observed.batch_of[result] for result in results) <= last


def missing(observed: Observed, truth: Truth, ids: Ids) -> bool:
    """Whether a question leaves out required streams of which tuples have been purged."""
    names = {stream.name: at for at, stream in enumerate(observed.run.query.streams)}
    return any(
        not observed.state.is_complete(at) for name, at in names.items() if name not in ids and name not in truth.how
    )


def excused(observed: Observed, truth: Truth, ids: Ids, combination: Combination) -> bool:
    """Whether too much has been purged to tell, and results don't tell either."""
    hidden = [name for name, how in truth.how.items() if how in ("semi", "anti")]
    names = {stream.name: at for at, stream in enumerate(observed.run.query.streams)}
    unknown = [member.stream for member in combination.members if member.fate in ("joined", "unknown")]
    may_be_purged = any(not observed.state.is_complete(names[name]) for name in (*hidden, *truth.as_of))
    purged = unknown or missing(observed, truth, ids) or may_be_purged
    silent = not observed.has_results or any(name in hidden for name in ids)
    return bool(purged) and (
        silent or bool(missing(observed, truth, ids)) or any(name in truth.how for name in unknown)
    )


@search(12)
@given(st.one_of(cases(), steady(), test_asof.cases(), test_asof.steady()), st.booleans())
def test_what_is_said_of_tuples_is_what_the_oracle_says(case: dict[str, Any], has_results: bool) -> None:
    with TemporaryDirectory() as folder:
        check(case, Path(folder), has_results)
