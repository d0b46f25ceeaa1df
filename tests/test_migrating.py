"""The page on migrating keeps its word: joins here give what the other engines give, on the page's rows and others."""

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from tests.test_docs import ROOT, blocks, run_page
from watersmeet.testing import write_batches

PAGE = ROOT / "docs" / "migrating.md"
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def names(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the page's examples leave behind; their outputs are compared as they run."""
    folder = str(tmp_path_factory.mktemp("migrating"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", folder)
        patch.chdir(folder)
        yield run_page(PAGE, spark)


def count_rows(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def sql_of_page(text: str) -> str:
    """Return the SQL of another engine that the page shows."""
    return next(found for language, found, _ in blocks(PAGE) if language == "sql" and text in found)


def in_duckdb(query: str, **tables: DataFrame) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        for name, frame in tables.items():
            connection.register(name, frame.toArrow())
        return Counter(connection.execute(query).fetchall())


def test_spark_gives_the_same_on_the_page(names: dict[str, Any], spark: SparkSession) -> None:
    ours = count_rows(spark.read.parquet(f"{names['folder']}/ours"))
    assert ours == count_rows(spark.table("theirs")) and (2, None) in ours


@pytest.mark.slow
@pytest.mark.parametrize(("theirs", "ours"), [("inner", None), ("leftOuter", {"c": "left"})])
def test_spark_gives_the_same_on_random_rows(
    theirs: str, ours: dict[str, str] | None, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(theirs)
    monkeypatch.setitem(names, "folder", str(tmp_path))
    for part in ("impressions", "clicks"):
        rows = [[(20 * b + at, dice.randrange(3), 20 * b + dice.randrange(20)) for at in range(8)] for b in range(5)]
        write_batches(f"{tmp_path}/{part}", [names["batch"](*batch) for batch in (*rows, [(999, 3, 999)])])
    found = count_rows(names["our_join"]("ours", names["clicked"], ours))
    assert found == count_rows(names["spark_join"](f"random_{theirs}", names["clicked"], theirs))
    assert len(found) > 20 and any(click is None for _, click in found) == (ours is not None)


def test_a_join_closed_for_good_gives_what_spark_gives_for_static_frames(
    names: dict[str, Any], spark: SparkSession
) -> None:
    closed = spark.read.parquet(f"{names['folder']}/closed")
    i, c = (spark.read.parquet(f"{names['folder']}/{part}") for part in ("impressions", "clicks"))
    theirs = i.where("id < 10").alias("i").join(c.alias("c"), expr(names["clicked"]), "leftOuter")
    assert count_rows(closed) == count_rows(theirs.selectExpr("i.id", "c.id AS click"))


def test_spark_gives_the_same_full_join(names: dict[str, Any]) -> None:
    i, c = names["static"]["impressions"], names["static"]["clicks"]
    theirs = i.alias("i").join(c.alias("c"), expr(names["clicked"]), "fullOuter").selectExpr("i.id", "c.id AS click")
    assert count_rows(names["both"].toDF()) == count_rows(theirs)


def test_spark_gives_the_same_windows(names: dict[str, Any]) -> None:
    assert count_rows(names["windowed"]) == count_rows(names["tumbling"].toDF())


def test_flink_gives_the_same(names: dict[str, Any]) -> None:
    tables = {name: names[name] for name in ("orders", "shipments")}
    assert count_rows(names["shipped"].toDF()) == in_duckdb(sql_of_page("FROM orders o, shipments s"), **tables)


def test_pathway_gives_the_same(names: dict[str, Any]) -> None:
    left, right = names["t1"].collect(), names["t2"].collect()
    wanted = Counter((a.k, a.t, b.t) for a in left for b in right if a.k == b.k and a.t - 2 <= b.t <= a.t + 1)
    assert count_rows(names["near"].toDF()) == wanted


def test_duckdb_and_pandas_give_the_same_as_of(names: dict[str, Any]) -> None:
    found = count_rows(names["priced"].toDF())
    tables = {name: names[name] for name in ("trades", "quotes")}
    assert found == in_duckdb(sql_of_page("ASOF LEFT JOIN"), **tables)
    merged = names["merged"][["id", "price", "bid"]].astype(object)
    assert found == Counter(merged.where(merged.notna(), None).itertuples(index=False, name=None))


def test_nexmark_gives_the_same(names: dict[str, Any]) -> None:
    query = sql_of_page("ROW_NUMBER() OVER (PARTITION BY A.id")
    assert count_rows(names["winning"]) == in_duckdb(query, auction=names["auction"], bid=names["bid"])
    longest = max(row.expires - row.dateTime for row in names["auction"].collect())
    assert longest < timedelta(hours=1)  # the window of the page's join
