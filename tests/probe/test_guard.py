"""What a guarded connection runs: every expression that Watersmeet writes, and nothing that somebody else may."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from watersmeet.errors import DefinitionError, SqlError, StateError, WatersmeetError
from watersmeet.predicate.functions import ALIASES, FUNCTIONS, VARIADIC
from watersmeet.predicate.model import Dialect
from watersmeet.predicate.parse import parse_where
from watersmeet.probe.evaluators.duck import Duck

TYPES = {
    "flag": pa.bool_(), "tiny": pa.int8(), "i": pa.int32(), "l": pa.int64(), "f": pa.float32(), "d": pa.float64(),
    "m": pa.decimal128(10, 2), "s": pa.string(), "raw": pa.binary(), "day": pa.date32(),
    "ts": pa.timestamp("us", "UTC"), "n": pa.timestamp("us"), "xs": pa.list_(pa.int64()),
    "words": pa.list_(pa.string()),
    "at": pa.struct([("x", pa.float64())]),
}  # fmt: skip
SCHEMA = pa.schema(list(TYPES.items()))
SPARK_TYPES = ["boolean", "int", "bigint", "float", "double", "decimal(10,2)", "string", "date", "timestamp"]
DUCK = Duck(Dialect(), untrusted=True)


def conditions() -> Iterator[str]:
    """Yield conditions with every function of `where`, of columns of every type, every cast, every operator."""
    for name, counts in [*FUNCTIONS.items(), *((alias, FUNCTIONS[of]) for alias, of in ALIASES.items())]:
        for count in counts:
            for first, rest in product(TYPES, ("1", "b.s")) if count else [("i", "1")]:
                arguments = ", ".join([f"a.{first}", *([rest] * (count - 1))][:count])
                yield f"{name}({arguments}) = {name}({arguments})"
            yield from (f"{name}(a.{kind}, b.{kind}) IS NULL" for kind in TYPES if count == 2)
    yield from (f"{name}(a.{kind}, b.{kind}, a.{kind}) = b.{kind}" for name in VARIADIC for kind in TYPES)
    yield from (f"CAST(a.{kind} AS {other}) = CAST(b.{kind} AS {other})" for kind in TYPES for other in SPARK_TYPES)
    signs = ("=", "<", "<=>", "<>", "+ 1 <", "- 1 <", "* 2 <", "/ 2 <", "% 2 =", "& 1 =", "| 1 =", "^ 1 =", "|| 'x' =")
    yield from (f"a.{kind} {sign} b.{other}" for kind, other, sign in product(TYPES, ("d", "s"), signs))
    yield from (f"a.{kind} - b.{kind} < INTERVAL 3 HOURS" for kind in TYPES)
    yield from (f"a.{kind} BETWEEN b.{kind} - INTERVAL 1 MONTH AND b.{kind} + INTERVAL 2 SECONDS" for kind in TYPES)
    yield from ["a.s LIKE b.s", "a.s LIKE 'x!%%' ESCAPE '!' OR b.i = 1", "a.s RLIKE '^x+' AND a.s < b.s"]
    yield from ["a.s NOT LIKE concat(b.s, '%')", "a.i IN (1, b.i)", "NOT a.flag OR b.flag", "a.at.x < b.at.x"]
    yield from ["CASE WHEN a.i > b.i THEN 1 ELSE 2 END = 2", "a.xs[0] = b.l", "element_at(a.words, b.i) = 'x'"]
    yield from ["extract(year FROM a.ts) = extract(hour FROM b.ts)", "sin(a.d) < b.d", "ln(a.d) + exp(b.d) > 1"]
    yield from ["2 * asin(sqrt(pow(sin(radians(b.d - a.d) / 2), 2))) < 3", "levenshtein(a.s, b.s) < 2"]
    yield from [
        "array_contains(a.xs, b.l)",
        "size(array_intersect(a.words, b.words)) > 1",
        "a.n < b.n + INTERVAL 1 DAY",
    ]


def texts(part: Any) -> Iterator[str]:
    """Yield the expressions of DuckDB's that a conjunct has anywhere."""
    if isinstance(part, tuple):
        for one in part:
            yield from texts(one)
    elif is_dataclass(part):
        for field in fields(part):
            value = getattr(part, field.name)
            if field.name in ("sql", "low", "high", "unsure") and value is not None:
                yield value
            yield from texts(value)


@pytest.mark.parametrize("ansi", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_all_that_conditions_consist_of_is_admitted(ansi: bool) -> None:
    count = 0
    for condition in conditions():
        try:
            conjuncts = parse_where(condition, [("a", SCHEMA), ("b", SCHEMA)], (), Dialect(ansi=ansi))
        except SqlError:  # of another type than that
            continue
        DUCK._admit(texts(conjuncts))
        count += sum(1 for _ in texts(conjuncts))
    assert count > 2_000


@pytest.mark.parametrize(
    "text",
    [
        "(SELECT content FROM read_text('/etc/hostname')) = ''", "EXISTS (FROM glob('/*'))", "x IN (SELECT 1)",
        "1) FROM t WHERE (1", "1), (2", "1); COPY (SELECT 1) TO '/tmp/x' --", "x --", "1 /*", "", "SELECT 1", "a b",
        "1) --",
        "getenv('HOME') = ''", "current_setting('memory_limit') = ''", "query('SELECT 1')",
        "read_text('/etc/hostname')",
        "sum(x) > 1", "count(*) > 1", "sum(x) OVER () > 1", "COLUMNS('x') > 1", "? > 1", "$x > 1", "random() < 1",
        "main.abs(x) > 1", "system.main.abs(x) > 1", "x.getenv('HOME')", "nextval('x') = 1", "\ud800",
        "write_log('x') IS NULL", "list_transform([1], lambda y: getenv('HOME')) = []", "1" * 1_000_001,
        "abs(x) FILTER (WHERE getenv('x') = '') > 1", "abs(x ORDER BY getenv('x')) > 1", "TRY((SELECT 1)) = 1",
        "+".join("1" * 900),
    ],
)  # fmt: skip
def test_nothing_else_is(text: str) -> None:
    x = {"x": pa.array([1])}
    for run in (
        lambda: DUCK.filter(x, [text], 1),
        lambda: DUCK.attempt(x, [text], 1),
        lambda: DUCK.numbers(x, [text], 1),
        lambda: DUCK.values(x, text, 1),
        lambda: next(DUCK.join(x, {"y": pa.array([1])}, [text], (1, 1))),
        lambda: DUCK.find_unmatched(x, {"y": pa.array([1])}, [text], (1, 1)),
    ):
        with pytest.raises(StateError, match=r"^The checkpoint holds the condition .* it is not run; restore"):
            run()


@pytest.mark.parametrize("more", ["UNION ALL SELECT 42 --", "; CREATE TABLE own AS SELECT 7 AS i; FROM own --"])
def test_no_text_hides_what_it_is_put_before(more: str) -> None:
    """What follows a comment's line would be run, out of another text's string."""
    with pytest.raises(StateError, match=r"which is no expression: Watersmeet has not written it, and it is not run; "):
        DUCK.filter({"x": pa.array(["1"])}, ["1 = 1) --", f"x = '\n{more}'"], 1)


ZONES = ["UTC'; SELECT 1 --", "x", "", "'", "\0", "\ud800", "UTC' || getenv('HOME') || '", "../../etc/localtime"]


@pytest.mark.parametrize("untrusted", [True, False])
@pytest.mark.parametrize("zone", ZONES)
def test_a_time_zone_is_a_name_of_the_database(zone: str, untrusted: bool) -> None:
    with pytest.raises(DefinitionError, match=r"^The session's time zone is .*, and there is none of that name; "):
        Duck(Dialect(zone), untrusted=untrusted)


def test_a_time_zone_is_no_sql(tmp_path: Path) -> None:
    secret, target = tmp_path / "secret", tmp_path / "target"
    secret.write_text("secret")
    zone = f"UTC'; COPY (SELECT content FROM read_text('{secret}')) TO '{target}'; SET GLOBAL TimeZone = 'UTC"
    with pytest.raises(WatersmeetError):
        Duck(Dialect(zone))
    assert not target.exists()


def test_zones_by_offset_are_known() -> None:
    noon = pa.array([43_200_000_000], pa.timestamp("us", "UTC"))
    values = Duck(Dialect("GMT+02:00")).values({"c": noon}, "CAST(c AS VARCHAR)", 1)
    assert values.to_pylist() == ["1970-01-01 14:00:00+02"]


def test_a_guarded_connection_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("watersmeet.probe.evaluators.duck.MEMORY", 24_000_000)
    rows = 400_000
    values = pa.array([f"{number:060}" for number in range(rows)])
    pairs = Duck(Dialect(), untrusted=True).join({"x": values}, {"y": values}, ["x = y"], (rows, rows))
    with pytest.raises(duckdb.OutOfMemoryException):
        sum(len(left) for left, _ in pairs)
    assert not [*tmp_path.iterdir()]
