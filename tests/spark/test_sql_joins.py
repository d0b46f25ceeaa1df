"""Every kind of join in SQL, in any order: what Spark itself gives, static and streamed."""

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import cuts, frames, read, run, through, write

pytestmark = pytest.mark.spark
WINDOW = "[RANGE 1000 DAYS]"


@pytest.fixture(scope="module")
def inputs(spark: SparkSession) -> dict[str, DataFrame]:
    """Three streams with NULL keys, and columns that are NULL in what matches."""
    a = "SELECT id, timestamp_seconds(1700000000 + 60 * id) AS ts, CAST(IF(id = 4, NULL, id % 5) AS INT) AS k, "
    a += "id % 3 AS x, concat('n', id % 4) AS name FROM range(8)"
    b = "SELECT id + 100 AS id, timestamp_seconds(1700000010 + 50 * id) AS ts, "
    b += "CAST(IF(id = 2, NULL, id % 4) AS INT) AS k, IF(id = 3, NULL, id % 2) AS y, id > 3 AS f FROM range(7)"
    c = "SELECT id + 200 AS id, timestamp_seconds(1700000020 + 40 * id) AS ts, CAST(id % 6 AS INT) AS k, id % 2 AS z "
    made = {"a": spark.sql(a), "b": spark.sql(b), "c": spark.sql(f"{c} FROM range(6)")}
    for name, frame in made.items():
        frame.createOrReplaceTempView(name)
    return made


TWO = "SELECT a.id AS a_id, b.id AS b_id FROM a {0} "
THREE = "SELECT a.id AS a_id, b.id AS b_id, c.id AS c_id FROM a {0} "
ALONE = "SELECT a.id AS a_id FROM a {0} "
STATEMENTS = [
    # constants and required streams after ON
    TWO + "LEFT JOIN b {0} ON a.k = b.k AND 1 = 0",
    ALONE + "LEFT ANTI JOIN b {0} ON FALSE",
    ALONE + "WHERE NOT EXISTS (SELECT 1 FROM b {0} WHERE b.k = a.k AND FALSE)",
    ALONE + "LEFT ANTI JOIN b {0} ON a.k = b.k AND CAST(NULL AS BOOLEAN)",
    TWO + "LEFT JOIN b {0} ON a.k = b.k AND a.x > 1",
    ALONE + "LEFT SEMI JOIN b {0} ON a.k = b.k AND a.x = 1",
    TWO + "LEFT JOIN b {0} ON a.k = b.k OR a.x = 5",
    # inner joins and subqueries
    TWO + "JOIN b {0} ON a.k = b.k AND a.x > 0 WHERE b.y = 1",
    THREE + "JOIN b {0} ON a.k = b.k, c {0} WHERE c.k = a.k AND c.z = 1",
    ALONE + "WHERE EXISTS (SELECT 1 FROM b {0})",
    ALONE + "WHERE a.k IN (SELECT k FROM b {0} WHERE b.y = 1)",
    ALONE + "WHERE a.k NOT IN (SELECT k FROM b {0})",
    ALONE + "WHERE a.k NOT IN (SELECT b.k FROM b {0} WHERE b.k IS NOT NULL AND b.y = 1)",
    ALONE + "WHERE a.k NOT IN (SELECT b.k FROM b {0} WHERE b.id = -1)",
    # right and full joins
    TWO + "RIGHT JOIN b {0} ON a.k = b.k AND b.y = 1",
    TWO + "FULL JOIN b {0} ON a.k = b.k",
    TWO + "FULL OUTER JOIN b {0} ON a.k = b.k AND a.x > 0 AND b.y = 1",
    TWO + "FULL OUTER JOIN b {0} ON FALSE",
    TWO + "FULL JOIN b {0} ON exp(a.k) <= exp(b.k) AND regexp_like(a.name, '[12]')",
    # WHERE on streams that may be missing
    TWO + "LEFT JOIN b {0} ON a.k = b.k WHERE b.k IS NULL",
    ALONE + "LEFT JOIN b {0} ON a.k = b.k WHERE b.k IS NULL",
    ALONE + "LEFT JOIN b {0} ON a.k = b.k WHERE b.ts IS NULL AND a.x > 0",
    ALONE + "LEFT JOIN b {0} ON a.k = b.k WHERE b.y IS NULL",
    TWO + "LEFT OUTER JOIN b {0} ON a.k <=> b.k WHERE b.k IS NULL",
    TWO + "LEFT JOIN b {0} ON a.k = b.k WHERE b.y > 0",
    TWO + "LEFT JOIN b {0} ON a.k = b.k WHERE a.x = 1 OR b.y = 1",
    TWO + "FULL JOIN b {0} ON a.k = b.k WHERE coalesce(a.x, 0) = 0",
    TWO + "FULL JOIN b {0} ON a.k = b.k WHERE a.x = 1",
    TWO + "FULL JOIN b {0} ON a.k = b.k WHERE b.y BETWEEN 1 AND 2",
    TWO + "FULL JOIN b {0} ON a.k = b.k WHERE b.y = a.x",
    ALONE + "LEFT JOIN b {0} ON (a.x > 0) = b.f WHERE b.f",
    TWO + "FULL JOIN b {0} ON a.k = b.k WHERE 1 = 0",
    TWO + "LEFT JOIN b {0} ON a.k IS NOT DISTINCT FROM b.k WHERE a.x IS DISTINCT FROM b.y",
    ALONE + "WHERE NOT a.k IN (SELECT k FROM b {0} WHERE b.k IS NOT NULL)",
    ALONE + "WHERE NOT a.k NOT IN (SELECT k FROM b {0})",
    # USING
    "SELECT k, a.id AS a_id, b.id AS b_id FROM a {0} LEFT JOIN b {0} USING (k) WHERE k > 1",
    "SELECT k, a.id AS a_id, b.id AS b_id FROM a {0} RIGHT JOIN b {0} USING (k)",
    "SELECT k, a.id AS a_id, b.id AS b_id FROM a {0} FULL JOIN b {0} USING (k) WHERE k > 0",
    "SELECT k + 1 AS more, a.id AS a_id, c.id AS c_id FROM a {0} FULL JOIN b {0} USING (k) FULL JOIN c {0} USING (k)",
    # several, each with what stands before it
    THREE + "FULL JOIN b {0} ON a.k = b.k FULL JOIN c {0} ON c.k = coalesce(a.k, b.k)",
    THREE + "FULL JOIN b {0} ON a.k = b.k LEFT JOIN c {0} ON c.k = a.k WHERE c.z = 1 OR c.z IS NULL",
    THREE + "LEFT JOIN b {0} ON a.k = b.k LEFT JOIN c {0} ON c.k = b.k",
    THREE + "LEFT JOIN b {0} ON a.k = b.k LEFT JOIN c {0} ON c.k = a.k",
    THREE + "LEFT JOIN b {0} ON a.k = b.k JOIN c {0} ON c.k = b.k",
    THREE + "LEFT JOIN b {0} ON a.k = b.k JOIN c {0} ON c.k = a.k",
    THREE + "JOIN b {0} ON a.k = b.k RIGHT JOIN c {0} ON c.k = b.k",
    THREE + "JOIN b {0} ON a.k = b.k FULL JOIN c {0} ON c.k = a.k + 1",
    THREE + "RIGHT JOIN b {0} ON a.k = b.k LEFT JOIN c {0} ON c.k = a.k",
    THREE + "CROSS JOIN b {0} LEFT JOIN c {0} ON c.k = a.k AND c.k = b.k",
    THREE + ", b {0} RIGHT JOIN c {0} ON c.k = b.k WHERE a.x = 1",
    THREE + ", b {0} FULL JOIN c {0} ON c.k = b.k WHERE a.x = 1",
    TWO + "LEFT JOIN b {0} ON a.k = b.k LEFT ANTI JOIN c {0} ON c.k = b.k",
    TWO + "LEFT JOIN b {0} ON a.k = b.k WHERE NOT EXISTS (SELECT 1 FROM c {0} WHERE c.k = b.k)",
    "SELECT a.*, b.id AS b_id, c.z FROM a {0} LEFT JOIN b {0} ON a.k = b.k LEFT JOIN c {0} ON c.k = b.k",
    "SELECT l.id AS l_id, r.id AS r_id FROM a l {0} LEFT JOIN a AS r {0} ON l.k = r.x AND l.x = 1 AND r.x = 1",
]


@pytest.mark.parametrize("statement", one_in(12, STATEMENTS))
def test_static_frames_give_what_spark_gives(spark: SparkSession, inputs: Any, statement: str) -> None:
    found = wm.sql(statement.format(WINDOW), inputs, time="ts").toDF().collect()
    assert Counter(map(str, found)) == Counter(map(str, spark.sql(statement.format("")).collect()))


AS_OF = [
    ("ASOF JOIN b {0} ON a.k = b.k", ""),
    ("ASOF LEFT JOIN b {0} ON a.k = b.k AND b.ts <= a.ts AND a.x > 0", ""),
    ("ASOF LEFT JOIN b {0} ON a.k = b.k", "WHERE b.y = 1"),
]


@pytest.mark.parametrize("asked", one_in(2, AS_OF))
def test_as_of_joins_give_what_duckdb_gives(inputs: Any, asked: tuple[str, str]) -> None:
    """[!] WHERE looks at the newest partner, and does not choose it."""
    join, where = asked
    found = wm.sql(f"{TWO}{join} {where}".format(WINDOW), inputs, time="ts").toDF().collect()
    connection = duckdb.connect()
    for name, frame in inputs.items():
        connection.register(name, frame.toArrow())
    on = join if "b.ts <=" in join else f"{join} AND b.ts <= a.ts"
    wanted = connection.sql(f"{TWO}{on} {where}".format("")).fetchall()
    assert Counter(map(tuple, found)) == Counter(wanted)
    assert len(wanted) > 1


@pytest.mark.slow
def test_what_follows_an_as_of_join_does_not_choose_its_partner(spark: SparkSession) -> None:
    """Nor do windows that follow from one condition limit what the next may match."""
    rows = "SELECT 1 AS k, timestamp_seconds(1700000000 + 60 * {}) AS ts, {} AS x"
    frames = {name: spark.sql(rows.format(minute, 0)) for name, minute in (("t", 5), ("c", 9), ("far", 300))}
    frames["q"] = spark.sql(rows.format(4, 1)).union(spark.sql(rows.format(8, 2)))
    for joined in ("JOIN c ON c.k = t.k", ", c WHERE c.k = t.k", "LEFT JOIN c ON c.k = t.k"):
        found = wm.sql(f"SELECT q.x AS x FROM t ASOF JOIN q ON q.k = t.k {joined}", frames, time="ts").toDF()
        assert [row.x for row in found.collect()] == [1]
    near = "LEFT JOIN c ON c.ts BETWEEN t.ts AND t.ts + INTERVAL 10 MINUTES LEFT JOIN far ON far.k = c.k"
    for window in ("", "[RANGE 1 HOUR]"):
        found = wm.sql(f"SELECT far.k AS k FROM t {near}".replace("c ON", f"c {window} ON"), frames, time="ts").toDF()
        assert [row.k for row in found.collect()] == [1]


def test_commas_follow_the_sessions_setting(spark: SparkSession, inputs: Any) -> None:
    statement = THREE + ", b {0} RIGHT JOIN c {0} ON c.k = b.k WHERE a.x = 1"
    spark.conf.set("spark.sql.ansi.relationPrecedence", "true")
    try:
        found = wm.sql(statement.format(WINDOW), inputs, time="ts").toDF().collect()
        assert Counter(map(str, found)) == Counter(map(str, spark.sql(statement.format("")).collect()))
    finally:
        spark.conf.unset("spark.sql.ansi.relationPrecedence")


def test_a_filter_that_means_no_partner_is_an_anti_join_and_one_that_needs_it_an_inner_join(inputs: Any) -> None:
    def how(statement: str) -> tuple[Any, str]:
        query = wm.sql(statement.format(WINDOW), inputs, time="ts").query
        return {query.streams[at].name: kind for at, kind in query.optional.items()}, query.filter

    assert how(ALONE + "LEFT JOIN b {0} ON a.k = b.k WHERE b.k IS NULL") == ({"b": "anti"}, "")
    assert how(ALONE + "LEFT JOIN b {0} ON a.k = b.k WHERE b.y IS NULL") == ({"b": "left"}, "(b.y IS NULL)")
    assert how(TWO + "LEFT JOIN b {0} ON a.k = b.k WHERE b.k IS NULL") == ({"b": "left"}, "(b.k IS NULL)")
    assert how(TWO + "LEFT JOIN b {0} ON a.k = b.k WHERE abs(b.y) + 1 > 0") == ({}, "")
    assert how(TWO + "FULL JOIN b {0} ON a.k = b.k WHERE a.x <> 1") == ({"b": "left"}, "")
    assert how(TWO + "FULL JOIN b {0} ON a.k = b.k WHERE b.y IS NOT NULL") == ({"a": "left"}, "")


def test_all_columns_of_joins_within_joins(inputs: Any) -> None:
    statement = "SELECT * FROM a {0} FULL JOIN b {0} ON a.k = b.k LEFT JOIN c {0} ON c.k = a.k"
    rows = wm.sql(statement.format(WINDOW), inputs, time="ts").toDF().collect()
    assert [*rows[0].asDict()] == ["a", "b", "c", "_time"]
    assert {row.a is None for row in rows} == {row.b is None for row in rows} == {True, False}
    assert all(row._time == max(part.ts for part in (row.a, row.b, row.c) if part is not None) for row in rows)


def test_on_says_what_partners_are_whatever_it_names(spark: SparkSession, inputs: Any) -> None:
    a, b = (wm.stream(name, inputs[name], time="ts") for name in "ab")
    wanted = spark.sql("SELECT a.id AS a, b.id AS b FROM a LEFT JOIN b ON a.k = b.k AND a.x > 1 WHERE a.x > 0")
    for on, where in (("a.k = b.k AND a.x > 1 -- few", "a.x > 0"), ((a.k == b.k) & (a.x > 1), "a.x > 0")):
        join = wm.join(a, b, how={"b": "left"}, on={"b": on}, where=where, select="a.id AS a, b.id AS b")
        assert Counter(map(str, join.toDF().collect())) == Counter(map(str, wanted.collect()))
    with pytest.raises(wm.DefinitionError, match="WHERE names 'b', whose partners have conditions of their own"):
        wm.join(a, b, how={"b": "left"}, on={"b": "a.k = b.k"}, where="b.y = 1")
    with pytest.raises(wm.DefinitionError, match="give where, on and select as strings"):
        wm.join(a, b, how={"b": "left"}, on={"b": a.k == b.k}, untrusted=True)
    for empty in (" ", None):
        with pytest.raises(wm.DefinitionError, match="there is no condition; write 'TRUE' if all match"):
            wm.join(a, b, how={"b": "left"}, on={"b": empty})  # type: ignore[dict-item]
    with pytest.raises(wm.DefinitionError, match=r"on=\{'b': \.\.\.\} must be a string such as"):
        wm.join(a, b, how={"b": "left"}, on={"b": 5})  # type: ignore[dict-item]


def apart(one: str, two: str) -> str:
    """Return that two times lie within a window of ten seconds."""
    return f"abs(unix_micros({one}) - unix_micros({two})) < 10000000"


STREAMED = {
    "FULL JOIN b {0} ON a.k = b.k AND a.x < 3": f"FULL JOIN b ON a.k = b.k AND a.x < 3 AND {apart('a.ts', 'b.ts')}",
    "LEFT JOIN b {0} ON a.k = b.k AND a.x < 3 WHERE coalesce(b.x, 0) <= a.x": (
        f"LEFT JOIN b ON a.k = b.k AND a.x < 3 AND {apart('a.ts', 'b.ts')} WHERE coalesce(b.x, 0) <= a.x"
    ),
    "FULL JOIN b {0} ON a.k = b.k AND a.x = b.x FULL JOIN c {0} ON c.x = coalesce(a.x, b.x) AND c.k = 'p'": (
        f"FULL JOIN b ON a.k = b.k AND a.x = b.x AND {apart('a.ts', 'b.ts')} FULL JOIN c ON c.x = coalesce(a.x, b.x) "
        f"AND c.k = 'p' AND {apart('greatest(a.ts, b.ts)', 'c.ts')}"
    ),
    "LEFT JOIN b {0} ON a.k = b.k AND a.x = b.x LEFT ANTI JOIN c {0} ON c.x = b.x": (
        f"LEFT JOIN b ON a.k = b.k AND a.x = b.x AND {apart('a.ts', 'b.ts')} "
        f"LEFT ANTI JOIN c ON c.x = b.x AND {apart('greatest(a.ts, b.ts)', 'c.ts')}"
    ),
}
END = [{name: [{"id": -1, "ts": 1000.0 * at, "x": None, "k": None}] for name in "abc"} for at in range(1, 5)]
"""Rows by which the watermark passes all others; nothing matches them."""


@through("driver")
@pytest.mark.parametrize("asked", one_in(3, STREAMED))
def test_a_stream_gives_what_spark_gives_of_the_whole(
    spark: SparkSession, tmp_path: Path, exchange: str, asked: str
) -> None:
    batches = cuts(11, "abc", 4, values=4)
    for part in (batches[:2], [*batches[2:], *END]):
        write(tmp_path / "in", part)
        shown = "a.id AS a, b.id AS b" if "ANTI" in asked or "c" not in asked else "a.id AS a, b.id AS b, c.id AS c"
        statement = f"SELECT {shown} FROM a {{0}} {asked}".format("[RANGE 10 SECONDS]")
        join = wm.sql(statement, frames(spark, tmp_path / "in", "abc"), time="ts", delay="12 seconds")
        run(join.writeStream, tmp_path, exchange)
    for name in "abc":
        spark.read.parquet(str(tmp_path / "in" / name)).where("id >= 0").createOrReplaceTempView(name)
    wanted = Counter(tuple(row) for row in spark.sql(f"SELECT {shown} FROM a {STREAMED[asked]}").collect())
    found = Counter(tuple(row.values()) for row in read(tmp_path / "out").to_pylist() if -1 not in row.values())
    assert found == wanted and len(wanted) > 5


def test_what_a_statement_cannot_ask(inputs: Any) -> None:
    for statement, problem in (
        (ALONE + "WHERE a.x = (SELECT max(b.y) FROM b)", r"A subquery in WHERE must be \[NOT\] EXISTS"),
        ("SELECT a.id FROM a {0} JOIN b {0} USING (x)", r"USING \(x\): 'b' has no such column"),
        ("SELECT a.id FROM a {0} JOIN b {0} USING (y)", r"USING \(y\): no stream before it has such a column"),
        ("SELECT a.id FROM a {0}, b {0} JOIN c {0} USING (k)", r"USING \(k\): both a and b have it; write ON"),
        (
            ALONE + "LEFT ANTI JOIN b {0} ON a.k = b.k WHERE b.y = 1",
            "WHERE names 'b', whose partners have conditions of their own",
        ),
        (
            ALONE + "WHERE EXISTS (SELECT 1 FROM b {0}) AND y = 1",
            "WHERE names 'b', whose partners have conditions of their own",
        ),
        (
            "SELECT a.* EXCEPT (k) FROM a {0} FULL JOIN b {0} ON a.k = b.k LEFT JOIN c {0} ON c.k = a.k",
            "a is inside a join of its own here: name its columns one by one",
        ),
    ):
        with pytest.raises(wm.DefinitionError, match=problem):
            wm.sql(statement.format(WINDOW), inputs, time="ts")


@pytest.mark.slow
def test_why_looks_at_a_full_join_from_the_stream_that_is_asked_about(inputs: Any) -> None:
    a, b = (wm.stream(name, inputs[name], time="ts") for name in "ab")
    join = wm.join(a, b, where="a.k = b.k", how={"b": "full"})
    assert "It gives a result at 2023-11-14 22:17:20: it has no partner in b." in str(join.why(a={"id": 4}))
    assert join.why(b={"id": 102}).combinations[0].joined
    assert join.why(a={"id": 4}).combinations[0].joined
    assert not join.why(a={"id": 4}, b={"id": 102}).combinations[0].joined
    assert join.why(a={"id": 1}, b={"id": 101}).combinations[0].joined
