"""What of a session changes what SQL means."""

from typing import Any

from pyspark.sql import SparkSession

from watersmeet.predicate.model import Dialect
from watersmeet.spark.run.versions import SPARK


def dialect_of(spark: SparkSession) -> Dialect:
    """Return what expressions mean by the session's settings and its version."""
    ansi = str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"
    return Dialect(_zone(spark, str(spark.conf.get("spark.sql.session.timeZone"))), ansi, wide_vectors=SPARK >= (4, 3))


def _zone(spark: SparkSession, name: str) -> str:
    """Return a time zone by a name that others know, too: Spark also takes PST, and +1:00 for GMT+01:00."""
    jvm: Any = spark._jvm
    known = jvm.java.time.ZoneId.getAvailableZoneIds()
    if known.contains(name):
        return name
    zone = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(name)
    if known.contains(zone.getId()):
        return str(zone.getId())
    offset = str(zone.normalized().getId())
    return "UTC" if offset == "Z" else f"GMT{offset}"
