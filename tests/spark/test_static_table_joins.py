"""Tables on Spark: static frames beside streams, read once and kept in the checkpoint."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from tests.budget import one_in
from tests.spark.harness import through

pytestmark = pytest.mark.spark

KIND = "id long, ts timestamp, zone int"


def write_rows(spark: SparkSession, folder: Path, *rows: tuple[int, int, int]) -> None:
    """Let rows of (id, second, zone) come."""
    made = [(at, datetime(2024, 1, 1, 0, 0, second), zone) for at, second, zone in rows]
    spark.createDataFrame(made, KIND).coalesce(1).write.mode("append").parquet(str(folder))


def zones(spark: SparkSession, *names: str) -> DataFrame:
    return spark.createDataFrame(list(enumerate(names)), "zone int, name string")


def run_join(join: wm.Join, folder: Path, exchange: str = "driver") -> list[Any]:
    """Run a join over what is there, and return its results."""
    writer = join.writeStream.option("checkpointLocation", folder / "ck").option("exchange", exchange)
    query = writer.option("latePath", folder / "late").trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination()
    assert all(p["watermark"] is None or p["heldBackBy"] != "zones" for p in query.progress)
    assert not (folder / "late" / "zones").exists() and (folder / "late" / "a").exists()
    return sorted(join.spark.read.parquet(str(folder / "out")).collect())


def test_a_table_is_read_once_and_kept(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    write_rows(spark, folder, (1, 1, 0), (2, 2, 1), (3, 3, 7))

    def join(*names: str) -> wm.Join:
        source = spark.readStream.schema(KIND).parquet(str(folder))
        a, z = wm.stream("a", source, time="ts", window="10 seconds"), wm.table("zones", zones(spark, *names))
        return wm.join(a, z, where=(a.zone == z.zone) & (z.name != "closed"))

    first = join("north", "south", "closed")
    first.explain()
    assert "zones: a table, read once" in capsys.readouterr().out
    found = run_join(first, tmp_path)
    assert [(row.a.id, row.zones.name) for row in found] == [(1, "north"), (2, "south")]
    assert found[0].asDict(True) == {
        "a": {"id": 1, "ts": datetime(2024, 1, 1, 0, 0, 1), "zone": 0},
        "zones": {"zone": 0, "name": "north"},
        "_time": datetime(2024, 1, 1, 0, 0, 1),
    }
    write_rows(spark, folder, (4, 59, 1), (5, 59, 3))
    found = run_join(join("NORTH", "SOUTH", "closed", "west"), tmp_path, "shuffle")  # what it is now does not matter
    assert [(row.a.id, row.zones.name) for row in found] == [(1, "north"), (2, "south"), (4, "south")]


@through("driver")
def test_a_table_is_read_for_each_batch(
    spark: SparkSession, tmp_path: Path, exchange: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, place = tmp_path / "in", str(tmp_path / "zones")
    write_rows(spark, folder, (1, 1, 0), (2, 2, 1))
    zones(spark, "north", "south").coalesce(1).write.parquet(place)

    def join() -> wm.Join:
        source = spark.readStream.schema(KIND).option("maxFilesPerTrigger", 1).parquet(str(folder))
        table = wm.table("zones", spark.read.parquet(place), refresh=True)
        a, b = (wm.stream(name, source, time="ts", window="1 minute") for name in "ab")
        return wm.join(a, b, table, where="a.zone = zones.zone AND b.id = a.id + 1", select="a.id, b.id AS b, name")

    made = join()
    made.explain()
    assert "zones: a table, read for each batch" in capsys.readouterr().out
    assert run_join(made, tmp_path, exchange) == [(1, 2, "north")]
    zones(spark, "North", "South").coalesce(1).write.mode("overwrite").parquet(place)  # its files are others now
    write_rows(spark, folder, (3, 3, 1))
    assert run_join(made, tmp_path, exchange) == [(1, 2, "north"), (2, 3, "South")]  # what is there stays as it is
    zones(spark, "NORTH", "SOUTH").coalesce(1).write.mode("append").parquet(place)
    write_rows(spark, folder, (4, 4, 0))
    found = run_join(join(), tmp_path, exchange)  # after a restart
    assert found == [(1, 2, "north"), (2, 3, "South"), (3, 4, "SOUTH"), (3, 4, "South")]


@pytest.mark.parametrize("format", one_in(2, ["csv", "parquet"]))
def test_a_table_that_loses_a_column(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """Spark would read NULL, and in CSV another column's values."""
    place = str(tmp_path / "zones")

    def write(*columns: str) -> None:
        known = zones(spark, "north", "south").selectExpr(*columns).coalesce(1)
        known.write.format(format).option("header", True).mode("overwrite").save(place)

    write("zone", "name", "zone + 1 AS size")
    write_rows(spark, tmp_path / "in", (1, 1, 0))
    source = spark.readStream.schema(KIND).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    found = spark.read.option("header", True).option("inferSchema", True).format(format).load(place)
    table = wm.table("zones", found, refresh=True)
    a = wm.stream("a", source, time="ts", window="1 minute")
    made = wm.join(a, table, where="a.zone = zones.zone", select="a.id, name")
    assert run_join(made, tmp_path) == [(1, "north")]
    write("zone", "name")  # nobody reads the size
    write_rows(spark, tmp_path / "in", (2, 2, 1))
    assert run_join(made, tmp_path) == [(1, "north"), (2, "south")]
    write("zone", "zone + 1 AS size")
    write_rows(spark, tmp_path / "in", (3, 3, 1))
    with pytest.raises(wm.StateError, match=r"Table 'zones' has lost the column 'name' since the join first read it"):
        run_join(made, tmp_path)
    write("zone", "name", "zone AS more")
    assert run_join(made, tmp_path) == [(1, "north"), (2, "south"), (3, "south")]


def test_a_table_that_is_read_once_is_not_one_that_is_read_for_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(spark, tmp_path / "in", (1, 1, 0))
    source = spark.readStream.schema(KIND).parquet(str(tmp_path / "in"))

    def join(refresh: bool) -> wm.Join:
        a, z = wm.stream("a", source, time="ts", window="1 minute"), zones(spark, "north")
        return wm.join(a, wm.table("zones", z, refresh=refresh), where="a.zone = zones.zone", select="a.id, name")

    assert run_join(join(False), tmp_path) == [(1, "north")]
    with pytest.raises(wm.WatersmeetError, match="refresh of 'zones'"):
        run_join(join(True), tmp_path)


def test_what_left_beside_a_table_is_not_said_to_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(spark, tmp_path / "in", (1, 1, 0), (2, 2, 7))
    write_rows(spark, tmp_path / "in", (3, 3, 0))
    write_rows(spark, tmp_path / "in", (4, 4, 0))
    source = spark.readStream.schema(KIND).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    table = wm.table("zones", zones(spark, "north", "south"))
    made = wm.join(wm.stream("a", source, time="ts"), table, where="a.zone <= zones.zone", select="a.id, zones.name")
    writer = made.writeStream.option("checkpointLocation", str(tmp_path / "ck")).trigger(availableNow=True)
    query = writer.foreachBatch(lambda frame, batch: None).start()
    query.awaitTermination()
    assert query.progress[-1]["distinctRows"] <= 3, "nothing is kept of the stream but its last batch"
    answer = query.why(a={"id": 1}, zones={"name": "north"})
    assert answer.joined is None and answer.tuples[0].fate == "unknown"
    assert "Tuples that can no longer match anything have been purged." in str(answer)


def test_why_waits_for_no_rows_of_tables(spark: SparkSession, tmp_path: Path) -> None:
    write_rows(spark, tmp_path / "in", (1, 1, 0), (2, 2, 7))
    source = spark.readStream.schema(KIND).parquet(str(tmp_path / "in"))
    a, z = wm.stream("a", source, time="ts", window="1 minute"), wm.table("zones", zones(spark, "north"))
    cases: dict[str, list[tuple[int, bool | None, str]]] = {
        "semi": [(1, True, "a result"), (2, False, "no partner in zones")],
        "anti": [(1, False, "a partner in zones"), (2, None, "None can come; it is emitted when the watermark")],
        "left": [(1, True, "a partner in zones"), (2, None, "None can come; it is emitted when the watermark")],
    }
    for how, said in cases.items():
        made = wm.join(a, z, where="a.zone = zones.zone", how={"zones": how}, select="a.id")
        writer = made.writeStream.option("checkpointLocation", str(tmp_path / how)).trigger(availableNow=True)
        query = writer.foreachBatch(lambda frame, batch: None).start()
        query.awaitTermination()
        for id, joined, words in said:
            answer = query.why(a={"id": id})
            assert (answer.joined, words in str(answer), "partner may come" in str(answer)) == (joined, True, False), (
                answer
            )


def test_tables_of_joins_within_others(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_rows(spark, folder, (1, 1, 0), (2, 2, 1))
    source = spark.readStream.schema(KIND).parquet(str(folder))
    a, z = wm.stream("a", source, time="ts", window="10 seconds"), wm.table("zones", zones(spark, "north", "south"))
    inner = wm.join(a, z, where="a.zone = zones.zone", select="a.id, zones.*, _time")
    signs = wm.table("signs", spark.createDataFrame([("north", "N"), ("south", "S")], "name string, sign string"))
    outer = wm.join(wm.stream("i", inner, window="10 seconds"), signs, where="i.name = signs.name", select="i.id, sign")
    assert run_join(outer, tmp_path) == [(1, "N"), (2, "S")]


def test_a_table_among_static_frames(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, datetime(2024, 1, 1), 0), (2, datetime(2024, 1, 2), 1)], KIND)
    timeless = rows.selectExpr("id", "cast(ts AS timestamp_ntz) AS ts", "zone")
    for frame in (rows, timeless):
        a, z = wm.stream("a", frame, time="ts", window="1 day"), wm.table("zones", zones(spark, "north", "south"))
        made = wm.join(a, z, where="a.zone = zones.zone", select="a.id, zones.*, _time").toDF()
        assert made.columns == ["id", "zone", "name", "_time"]
        assert sorted((row.id, row.name) for row in made.collect()) == [(1, "north"), (2, "south")]


def test_a_table_in_a_statement(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, datetime(2024, 1, 1), 0), (2, datetime(2024, 1, 2), 1)], KIND)
    text = "SELECT a.id, z.name FROM a [RANGE 1 DAY], z{} WHERE a.zone = z.zone"
    streams: dict[str, Any] = {"a": rows, "z": wm.table("zones", zones(spark, "north", "south"))}
    found = wm.sql(text.format(""), streams, time="ts").toDF().collect()
    assert sorted((row.id, row.name) for row in found) == [(1, "north"), (2, "south")]
    for given in ("[ROWS 5]", "[RANGE 1 DAY]", "[WATTR name]", "[KEY (zone)]"):
        with pytest.raises(wm.DefinitionError, match="Table 'z' has no times: write z without brackets after FROM"):
            wm.sql(text.format(given), streams, time="ts")
    for name in ("_time", "_ws_z", "my.z"):
        with pytest.raises(wm.DefinitionError, match="can't name a stream"):
            wm.sql(f"SELECT a.id FROM a [RANGE 1 DAY], `{name}`", {"a": rows, name: streams["z"]}, time="ts")
    with pytest.raises(
        wm.DefinitionError, match=r"Stream 'a': give wm.sql the frame itself, not wm.stream\(...\); its"
    ):
        wm.sql(text.format(""), streams | {"a": wm.stream("a", rows, time="ts")}, time="ts")


def test_samples_of_a_table_have_no_times(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, datetime(2024, 1, day), 0) for day in (1, 2)], KIND)
    known = zones(spark, "north")
    streams = wm.stream("a", rows, time="ts", window="1 day"), wm.table("zones", known)
    predicates: Any = {"same": lambda zone, others: others == zone}
    made = wm.join(*streams, where="same(a.zone, zones.zone)", predicates=predicates)
    assert made.check({"a": rows, "zones": known}) == []


def test_a_left_table_is_a_struct_or_null(spark: SparkSession) -> None:
    a = wm.stream("a", spark.sql("SELECT id, timestamp_seconds(id) AS ts, string(id) AS zone FROM range(3)"), time="ts")
    z = wm.table("z", spark.sql("SELECT '1' AS zone, CAST(NULL AS STRING) AS name"))
    found = wm.join(a, z, where="a.zone = z.zone", how={"z": "left"}).toDF()
    assert found.columns == ["a", "z", "_time"] and found.select("z.*").columns == ["zone", "name"]
    assert {row.a.id: row.z and tuple(row.z) for row in found.collect()} == {0: None, 1: ("1", None), 2: None}


def test_what_can_not_be_a_table(spark: SparkSession) -> None:
    streaming = spark.readStream.format("rate").load()
    with pytest.raises(wm.DefinitionError, match=r"Table 'z' is a streaming frame; a table is a static one: use wm.st"):
        wm.table("z", streaming)
    with pytest.raises(wm.DefinitionError, match="5 can't name a stream"):
        wm.table(5, zones(spark, "a"))  # type: ignore[arg-type]
    with pytest.raises(wm.DefinitionError, match="Table 'z' needs a Spark DataFrame, static or streaming; got"):
        wm.table("z", [1])  # type: ignore[arg-type]
    with pytest.raises(wm.DefinitionError, match="Table 'z': refresh='daily' is neither True nor False"):
        wm.table("z", zones(spark, "a"), refresh="daily")  # type: ignore[arg-type]
    z, s = wm.table("z", zones(spark, "a")), wm.stream("s", streaming, time="timestamp")
    with pytest.raises(wm.DefinitionError, match="Table 'y' is read for each batch, and what has no partner is only"):
        anew = wm.table("y", zones(spark, "a"), refresh=True)
        wm.join(wm.stream("s", streaming, time="timestamp", window="1 minute"), anew, how={"y": "anti"})
    with pytest.raises(wm.WatersmeetError, match="has no column zonne; it has zone, name\\.") as told:
        wm.join(z, s, where="z.zonne = s.value")
    assert "_ws_" not in str(told.value)
    with pytest.raises(wm.WatersmeetError, match="no column _ws_time"):
        wm.join(z, s, where="z._ws_time IS NOT NULL")
    for asked in ("z._WS_time", "_ws_time"):
        with pytest.raises(wm.WatersmeetError, match=r"no column _(ws|WS)_time"):
            wm.join(z, s, select=asked)
    with pytest.raises(wm.WatersmeetError, match="no column _ws_time"):
        wm.join(z, s, select=[F.col("z._ws_time")])
    with pytest.raises(wm.DefinitionError, match="Table 'z' has a column _ws_time: that name is reserved; rename"):
        wm.table("z", zones(spark, "a").withColumnRenamed("name", "_WS_TIME"))
    with pytest.raises(wm.DefinitionError, match="A join needs a stream beside its tables"):
        wm.join(z, wm.table("y", zones(spark, "a")))
    with pytest.raises(wm.DefinitionError, match="spill= can't be used with a table, 'z', yet"):
        wm.join(z, s, spill=wm.Spill(within="1 second"))
    with pytest.raises(wm.DefinitionError, match=r"toDF\(\) joins static inputs"):
        wm.join(z, s).toDF()
