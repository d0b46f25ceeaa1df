"""Great-circle distances through Spark: by which column they are looked up, that Spark agrees, and what why says."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.budget import one_in

pytestmark = pytest.mark.spark
HAVERSINE = (
    "2 * 6371 * asin(sqrt(pow(sin(radians(b.lat - a.lat) / 2), 2) + "
    "cos(radians(a.lat)) * cos(radians(b.lat)) * pow(sin(radians(b.lon - a.lon) / 2), 2))) < 5"
)
IN_RADIANS = HAVERSINE.replace("radians(b.lat - a.lat)", "(radians(b.lat) - radians(a.lat))")
FIELDS = HAVERSINE.replace("a.", "a.at.").replace("b.", "b.at.")
COSINES = (
    "6371 * acos(sin(radians(a.lat)) * sin(radians(b.lat)) + "
    "cos(radians(a.lat)) * cos(radians(b.lat)) * cos(radians(b.lon - a.lon))) < 5"
)
LEAST = HAVERSINE.replace("sqrt(", "least(1, sqrt(").replace(") < 5", ")) < 5")
"""A great circle that only Spark computes."""


@pytest.fixture(scope="module")
def places(spark: SparkSession) -> Any:
    """Places near a city, the poles and the antimeridian, and some that are none."""
    rows = spark.sql(
        "SELECT int(id) AS id, timestamp_seconds(1700000000 + id % 7) AS ts, "
        "CASE id % 5 WHEN 0 THEN 90 - id / 3000 WHEN 1 THEN -90 + id / 3000 WHEN 2 THEN 0.01 WHEN 3 THEN 127.5 "
        "ELSE 52.5 + id / 3000 END AS lat, "
        "CASE id % 5 WHEN 2 THEN 180 - id / 3000 WHEN 3 THEN -166.6 WHEN 4 THEN 13.4 "
        "ELSE id * 7 % 360 - 180 END AS lon FROM range(150)"
    ).selectExpr("id", "ts", "double(lat)", "double(lon)")
    odd = rows.limit(2).selectExpr("id + 200 AS id", "ts", "double('NaN') AS lat", "lon")
    return rows.union(odd).selectExpr("*", "struct(lat, lon) AS at").cache()


def join_of(places: Any, where: str) -> Any:
    return wm.join(*(wm.stream(name, places, time="ts", window="10 seconds") for name in "ab"), where=where)


@pytest.mark.parametrize(
    ("where", "column"),
    one_in(
        3,
        [
            (HAVERSINE, "b.lat"),
            (IN_RADIANS, "radians(b.lat)"),
            (FIELDS, "b.at.lat"),
            (COSINES, "sin(radians(b.lat))"),
        ],
        unpack=True,
    ),
    ids=["haversine", "radians", "fields", "cosines"],
)
def test_it_is_looked_up_and_spark_agrees(
    places: Any, where: str, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    join = join_of(places, where)
    join.explain()
    assert f"    probe b by sorted index on {column}\n" in capsys.readouterr().out
    found = sorted((row[0], row[1]) for row in join.toDF().select("a.id", "b.id").collect())
    wanted = places.alias("a").crossJoin(places.alias("b")).where(where).selectExpr("a.id", "b.id").collect()
    assert found == sorted((row[0], row[1]) for row in wanted) and len(found) > 200


def test_why_tells_the_distance(places: Any) -> None:
    answer = join_of(places, HAVERSINE).why(a={"id": 4}, b={"id": 144})
    assert "They have not joined: `2 * 6371 * asin(sqrt(pow(…) + cos(…) * cos(…) * pow(…))) < 5` is FALSE: " in str(
        answer
    )
    assert "2 * 6371 * asin(sqrt(…)) = 5.1891, and it must be < 5 (a.lat = 52.5013333" in str(answer)
    assert "cos(radians(a.lat)) =" not in str(answer)
    cosines = join_of(places, COSINES).why(a={"id": 4}, b={"id": 144})
    assert "is FALSE: 6371 * acos(…) = 5.1891, and it must be < 5 (a.lon = 13.4, b.lon = 13.4)." in str(cosines)
    spark = join_of(places, LEAST).why(a={"id": 4}, b={"id": 144})
    assert "is FALSE: 2 * 6371 * asin(least(1, sqrt(…))) = 5.18909" in str(spark)
    assert ", and it must be < 5 (a.lat" in str(spark)
