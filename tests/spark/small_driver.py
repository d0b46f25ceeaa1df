"""Text from people in a driver of 1 GB: whatever it asks for, the driver must survive it."""

import json
from collections.abc import Callable

from pyspark.sql import SparkSession

import watersmeet as wm

LARGE = [
    "repeat(a.big, 1000000) AS x",
    "hex(hex(hex(a.big))) AS x",
    "array_join(array_repeat('x', 1000000), a.big) AS x",
    "replace(a.big, 'x', b.big) AS x",
    "regexp_replace(a.big, '(?=(.*))', '$1$1$1') AS x",
    "regexp_extract_all(a.big, '(?=(.*))') AS x",
    "format_string(repeat('%1$s', 100000), a.big) AS x",
    "lpad(a.s, 16000000, '\u20ac') AS x",
    "concat_ws(a.big, array_repeat('x', 1000000)) AS x",
    "a.big || a.big AS x, x || x AS y, y || y AS z, z || z AS v, v || v AS w, w || w AS u, u || u AS t",
    "array(a.big, a.big, a.big) AS x, array(x, x, x) AS y, array(y, y, y) AS z, array(z, z, z) AS v, array(v, v) AS w",
    "split(concat(a.big, a.big, a.big), '') AS x",
    "to_json(array_repeat(named_struct('a_long_name_of_a_field', 1), 1000000)) AS x",
    "from_json(replace(a.big, 'x', '{},'), 'array<struct<a: int, b: int, c: int, d: int>>') AS x",
    "length(translate(a.big, 'x', '\u20ac')) AS x",
]
"""What would take many times the memory, if it were made."""
SMALL = "a.id, upper(b.s) AS s"


def ending(join: Callable[[str], wm.Join], select: str) -> str:
    """Return how a join ended: with a sentence that refuses it, or otherwise."""
    try:
        return f"{join(select).toDF().toArrow().num_rows} rows"
    except Exception as error:
        return "refused" if "would make a value of more than" in str(error) else f"{type(error).__name__}: {error}"


def main() -> None:
    """Try all, and then a small join; print how each ended."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    columns = ("id", "timestamp_seconds(id) AS ts", "cast(id AS string) AS s", "repeat('x', 6000000) AS big")
    frame = spark.range(2).selectExpr(*columns)

    def join(select: str) -> wm.Join:
        text = f"SELECT {select} FROM a, b WHERE a.id = b.id"
        return wm.sql(text, {"a": frame, "b": frame}, time="ts", untrusted=True)

    for select in (*LARGE, SMALL):
        print(json.dumps({"select": select, "ended": ending(join, select)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
