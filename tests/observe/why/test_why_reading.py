"""What is asked, what is written down for the command line, and state that changes while it is read."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet import cli
from watersmeet.errors import DefinitionError, StateError
from watersmeet.metadata.constraints import Key, SortOrder
from watersmeet.observe.why import join_state
from watersmeet.observe.why.output_files import OutputFiles, ResultFolder, columns_in_results
from watersmeet.observe.why.question import find_join, parse_question
from watersmeet.observe.why.why_file import WhyDescription, read_descriptions, write_descriptions
from watersmeet.observe.why.why_pair import why_checkpoint as why
from watersmeet.placement import Central
from watersmeet.predicate.model import Column, Dialect, HiddenColumn
from watersmeet.predicate.parse import parse_where
from watersmeet.probe.evaluators.duck import Duck
from watersmeet.query.query import Query, StreamSpec
from watersmeet.query.windows import Count, Hopping, Sliding
from watersmeet.state.manifest.claim import claim
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.file_format import seal
from watersmeet.state.store.store import Store
from watersmeet.testing.run import Run

TEXTS = (pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        *[("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("k", pa.string())],
        *[("d", pa.decimal128(10, 2)), ("n", pa.timestamp("us")), ("day", pa.date32()), ("ok", pa.bool_())],
        *[("raw", pa.binary()), ("odd name", pa.int16()), ("tags", pa.list_(pa.string()))],
        *[("at", pa.struct([("n", pa.int32()), ("seen", pa.timestamp("us", "UTC"))])), ("props", pa.map_(*TEXTS))],
        *[("v", pa.list_(pa.float64()))],
    ]
)
TOKYO = Dialect("Asia/Tokyo")
DUCK = Duck(TOKYO)
WHERE = "a.k = b.k AND exp(a.x) < b.x AND abs(a.id - b.id) < 3 AND levenshtein(a.k, b.k) < 2"


def query_of(where: str = WHERE) -> Query:
    a = StreamSpec(
        "a", SCHEMA, 1, Sliding(10), 5, hidden=(HiddenColumn("a.x + 1", pa.float64()),), constraints=(Key((0,)),)
    )
    b = StreamSpec("b", SCHEMA, 1, Hopping(10, 5), 5, constraints=(SortOrder(4, slack=Decimal("1.5")),))
    names = [(s.name, s.schema) for s in (a, b)]
    return Query((a, b), parse_where(where, names, (), TOKYO), where, dialect=TOKYO)


@pytest.mark.parametrize(
    ("name", "value_given", "expected"),
    [
        ("id", "17", 17),
        ("ID", 17, 17),
        ("odd name", "-3", -3),
        ("x", "1e3", 1000.0),
        ("x", 1, 1.0),
        ("d", "1.50", Decimal("1.50")),
        ("d", 17, Decimal(17)),
        ("d", 1.1, Decimal("1.1")),
        ("k", "17", "17"),
        ("k", None, None),
        ("ok", "true", True),
        ("day", "2026-01-01", date(2026, 1, 1)),
        ("ts", "2026-01-01 12:00:00", datetime(2026, 1, 1, 3)),
        ("ts", "2026-01-01 12:00:00.25+00:00", datetime(2026, 1, 1, 12, 0, 0, 250_000)),
        ("ts", datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 3)),
        ("n", "2026-01-01 12:00:00", datetime(2026, 1, 1, 12)),
        ("raw", b"x", b"x"),
        ("tags", ["x", None], ["x", None]),
        ("tags", ("x",), ["x"]),
        ("tags", '["x", "y"]', ["x", "y"]),
        ("tags", [], []),
        ("v", np.array([1.0, 2.5]), [1.0, 2.5]),
        ("at", {"n": 1, "seen": None}, {"n": 1, "seen": None}),
        ("at", (1, "1970-01-01 09:00:01"), {"n": 1, "seen": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}),
        ("at", '{"n": 1, "seen": null}', {"n": 1, "seen": None}),
        ("props", None, None),
    ],
)
def test_values_are_read_in_the_columns_type(name: str, value_given: Any, expected: Any) -> None:
    (selector,) = parse_question(query_of(), {"A": {name: value_given}}, DUCK)
    (value,) = selector.values.values()
    value_read = value.as_py()
    assert (value_read.replace(tzinfo=None) if isinstance(value_read, datetime) else value_read) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 17 AND k = 'x y'", "id = 17 AND k = 'x y'"),
        ("(a.id = -17)", "id = -17"),
        ("ok = TRUE AND k IS NULL", "ok = TRUE AND k IS NULL"),
        ("`odd name` = 3", "odd name = 3"),
        ("ts = TIMESTAMP '2026-01-01 12:00:00'", "ts = 2026-01-01 12:00:00"),
    ],
)
def test_text_that_names_a_tuple(text: str, expected: str) -> None:
    assert parse_question(query_of(), {"a": text}, DUCK)[0].text == expected


@pytest.mark.parametrize("text", ["b.id = 1", "id = x", "id = 1 OR id = 2", "17", "id IN (1)", "lower(k) = 'x'"])
def test_text_that_does_not(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"is not of the form .*: only equalities are taken, joined by AND"):
        parse_question(query_of(), {"a": text}, DUCK)


def test_rows_are_compared_as_spark_does() -> None:
    nan, null = (parse_question(query_of(), {"a": {"x": x}}, DUCK)[0] for x in (float("nan"), None))
    values = {2: pa.array([1.0, None, float("nan")])}
    assert nan.mask(values).tolist() == [False, False, True]
    assert null.mask(values).tolist() == [False, True, False]


NAN = float("nan")
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "expected", "others"),
    [
        ("tags", ["x", "y"], [["x"], ["y", "x"], ["x", "y", "z"], [None, "y"], [], None]),
        ("tags", ["x", None], [["x", "y"], ["x"], [None, "x"]]),
        ("tags", [], [[None], None]),
        ("tags", None, [[], [None]]),
        ("v", [1.0, NAN], [[1.0, 2.0], [NAN, 1.0], [1.0, None]]),
        ("at", {"n": 1, "seen": MOMENT}, [{"n": 1, "seen": None}, {"n": 2, "seen": MOMENT}, None]),
        ("at", {"n": None, "seen": None}, [{"n": 1, "seen": None}, None]),
        ("raw", b"x", [b"", b"y", None]),
        ("d", "1.5", [Decimal("1.51"), None]),
        ("day", "2026-01-01", [date(2026, 1, 2), None]),
    ],
)
def test_values_of_all_kinds_are_found(name: str, expected: Any, others: list[Any]) -> None:
    (selector,) = parse_question(query_of(), {"a": {name: expected}}, DUCK)
    field, value = next(iter(selector.values.items()))
    rows = pa.array([*others, value.as_py(), *others], SCHEMA.field(field).type)
    for values in (rows, pa.chunked_array([rows[:1], rows[1:]])):
        assert np.flatnonzero(selector.mask({field: values})).tolist() == [len(others)]


@pytest.mark.parametrize(
    ("name", "value_given", "message"),
    [
        (
            "props",
            {"x": "y"},
            r"a\.props is of type map<string,string>, and maps can't be compared; name the tuple by",
        ),
        ("tags", "x", r"a\.tags is of type array<string>, and 'x' is no such value"),
        ("tags", {"x"}, "is no such value"),
        ("at", {"n": 1}, "is no such value"),
        ("at", {"n": 1, "other": 2}, "is no such value"),
        ("at", 5, "is no such value"),
        ("d", 1.555, "is no such value"),
        ("d", NAN, "is no such value"),
        ("id", NAN, "is no such value"),
        ("id", "239 AND x > 3", r"'239 AND x > 3' is no such value: only equalities are taken, joined by AND\."),
        ("id", "239 or x = 3", r"'239 or x = 3' is no such value: only equalities are taken, joined by AND\."),
        ("id", "Andorra", r"'Andorra' is no such value\."),
    ],
)
def test_values_that_no_row_can_have(name: str, value_given: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        parse_question(query_of(), {"a": {name: value_given}}, DUCK)


def test_streams_of_one_join() -> None:
    inner = replace(query_of(), streams=tuple(replace(s, name=f"{s.name}2") for s in query_of().streams))
    joins = {"j": query_of(), "j_0": inner}
    assert find_join(joins, {"A2": {}, "b2": {}}) == "j_0"
    with pytest.raises(DefinitionError, match="a and a2 are not streams of one join; those of each are a and b; a2"):
        find_join(joins, {"a": {}, "a2": {}})


def test_a_join_is_written_down_and_read_back(tmp_path: Path) -> None:
    query, store = query_of(), Store(str(tmp_path))
    outputs = OutputFiles("me", {"late": {"a": "/x/a"}}, ResultFolder("/out", "parquet"), columns_in_results(query))
    write_descriptions(store, {"j": WhyDescription(query, outputs)})
    assert read_descriptions(store) == {"j": WhyDescription(query, outputs)}
    assert read_descriptions(store)["j"].outputs.columns[Column(1, 0)] == ("b", "id")
    with pytest.raises(TypeError, match="is no part of a join"):
        write_descriptions(store, {"j": WhyDescription(replace(query, tracing=Manifest(0, ())), outputs)})  # type: ignore[arg-type]
    whole = (tmp_path / "why.json").read_bytes()
    for damage in (b"nonsense", whole[:-1], whole[:40], b"{}"):
        (tmp_path / "why.json").write_bytes(damage)
        with pytest.raises(StateError, match=r"why\.json, is damaged.*; start the query once, which writes it anew\.$"):
            read_descriptions(store)


def test_what_follows_from_the_conditions_is_not_written_down(tmp_path: Path) -> None:
    query, store = query_of("abs(a.x - b.x) < 1"), Store(str(tmp_path))
    assert all(conjunct.numeric and conjunct.bounds[0].numeric for conjunct in query.conjuncts)
    write_descriptions(store, {"j": WhyDescription(query, OutputFiles("me", {}, None, {}))})
    text = (tmp_path / "why.json").read_text()
    assert '"numeric"' not in text and read_descriptions(store)["j"].query == query
    forged = text.partition("\n")[2].replace('"conditional": false', '"conditional": false, "numeric": null')
    (tmp_path / "why.json").write_bytes(seal(json.loads(forged)))
    with pytest.raises(StateError, match="is not as Watersmeet writes it"):
        read_descriptions(store)


def test_constraints_keep_the_name_under_which_earlier_versions_stored_them(tmp_path: Path) -> None:
    query, store = query_of(), Store(str(tmp_path))
    constrained = tuple(replace(stream, constraints=(Key((0,)),)) for stream in query.streams)
    description = WhyDescription(replace(query, streams=constrained), OutputFiles("me", {}, None, {}))
    write_descriptions(store, {"j": description})
    content = (tmp_path / "why.json").read_text()
    assert '"promises"' in content and '"constraints"' not in content
    assert read_descriptions(store)["j"].query.streams == constrained


def test_what_another_checkpoint_wrote_down_is_not_answered_from(tmp_path: Path) -> None:
    query, stores = query_of(), [Store(str(tmp_path / name)) for name in "xy"]
    for store in stores:
        write_descriptions(store, {"j": WhyDescription(query, OutputFiles(claim(store, query.description())))})
    assert read_descriptions(stores[0])["j"].query == query
    shutil.copy(tmp_path / "y" / "why.json", tmp_path / "x" / "why.json")
    with pytest.raises(StateError, match=r"why\.json, is another checkpoint's; start the query once, which writes it"):
        read_descriptions(stores[0])
    shutil.copytree(tmp_path / "y", tmp_path / "moved")
    assert read_descriptions(Store(str(tmp_path / "moved")))["j"].query == query


def test_a_checkpoint_without_a_batch(tmp_path: Path) -> None:
    write_descriptions(Store(str(tmp_path / "watersmeet")), {"j": WhyDescription(query_of(), OutputFiles())})
    with pytest.raises(StateError, match="has not run a batch yet"):
        why(str(tmp_path), {"a": {"id": "1"}}, float)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--a", "id = 4 AND k = 'x y'"], {"id": "4", "k": "x y"}),
        (["--a=id=4 AND k='x'"], {"id": "4", "k": "x"}),
        (["--a", "id=4", "--a", "k=x"], {"id": "4", "k": "x"}),
        (["--a", "k=x AND y=2"], {"k": "x AND y=2"}),  # text without quotes: one value
        (["--a", "k=O'Brien AND id=2"], {"k": "O'Brien AND id=2"}),
        (["--a", "k='x'"], {"k": "'x'"}),
    ],
)
def test_columns_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, words: list[str], expected: dict[str, str]
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("watersmeet.observe.why.why_pair.why_checkpoint", lambda *all: calls.append(all))
    assert cli.main(["why", "checkpoint", *words]) == 0
    assert calls[0][:2] == ("checkpoint", {"a": expected})


def test_a_command_without_a_tuple_is_told_how_to_name_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_descriptions(Store(str(tmp_path / "watersmeet")), {"j": WhyDescription(query_of(), OutputFiles())})
    assert cli.main(["why", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "watersmeet: Name a tuple to ask about, such as --a id=VALUE.\n"


def test_state_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    streams = tuple(StreamSpec(name, SCHEMA, 1, Count(3), 5) for name in "ab")
    run = Run(Query(streams), Store(str(tmp_path)))
    row = {"id": 1, "ts": 5}
    run.step(Central(), [(0, row)])
    batches = []

    def make(state: Manifest | None) -> int:
        assert state is not None
        batches.append(state.batch)
        if len(batches) < 3:
            run.step(Central(), [(0, row)])
            raise StateError("a chunk is gone")
        return state.batch

    assert join_state.read_newest(run.store, make) == 2
    assert batches == [0, 1, 2]
    batches.clear()
    with pytest.raises(StateError, match="a chunk is gone"):
        join_state.read_newest(run.store, lambda state: make(None) if state is None else _raise_gone())

    def always(state: Manifest | None) -> int:
        run.step(Central(), [(0, row)])
        return _raise_gone()

    with pytest.raises(StateError, match="changes faster than it can be read"):
        join_state.read_newest(run.store, always)


def _raise_gone() -> int:
    raise StateError("a chunk is gone")
