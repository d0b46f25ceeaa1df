"""A news feed as XML: which keywords do readers look at?

One stream has news items, the other records of who reads them. An item is watched while it is among the ten latest;
then a punctuation in the access stream says that no more records of it will follow. Each item occurs once. With this
punctuation and this key, the join needs no window: an item leaves the state after its punctuation, a record once its
item has arrived. The feed is that of Ding, Rundensteiner and Heineman, "MJoin: A Metadata-Aware Stream Join Operator"
(2003), section 2.

Run it with `.venv/bin/python examples/news.py`. It generates its data in a temporary folder and reads them with
Spark's own source.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

START = datetime(2026, 1, 1, tzinfo=UTC)
ITEMS, LATEST, RECORDS = 40, 10, 6
"""Items, one per minute; how many of them are watched; how many records there are per minute."""
KEYWORDS = ("smart cards", "rivers", "chess", "cinema", "weather")
ENDS = "punct:record"
"""The tag of a punctuation: no record with this `sno` follows."""
MINUTES_PER_FILE = 10

HEADINGS = "batch  items  records  punctuations  purged  kept"

Element = tuple[str, dict[str, object]]
"""A tag and its content."""


def news(minute: int) -> Iterator[Element]:
    """The news item of a minute."""
    keyword = KEYWORDS[minute % len(KEYWORDS)]
    yield "info", {"sno": minute, "posted": at(minute), "title": f"Story {minute}", "keyword": keyword}


def access(minute: int) -> Iterator[Element]:
    """The records of a minute, and the punctuation of the item that is no longer watched after it."""
    dice, oldest = np.random.default_rng(minute), minute - LATEST + 1
    for second in sorted(dice.choice(60, RECORDS, replace=False).tolist()):
        sno = dice.integers(max(0, oldest), minute + 1)
        yield "record", {"sno": sno, "read": at(minute, second), "ipaddr": f"192.0.2.{dice.integers(256)}"}
    if oldest >= 0:
        yield ENDS, {"sno": oldest, "read": at(minute + 1), "ipaddr": "*"}


def at(minute: int, second: int = 0) -> str:
    """A time of the feed, as XML writes it."""
    return (START + timedelta(minutes=minute, seconds=second)).isoformat()


def write(folder: Path, name: str, elements: Callable[[int], Iterator[Element]]) -> None:
    """Write a stream as XML documents, each covering several minutes."""
    folder.mkdir()
    for start in range(0, ITEMS, MINUTES_PER_FILE):
        root = ElementTree.Element(f"stream:{name}", {"xmlns:stream": "urn:stream", "xmlns:punct": "urn:punct"})
        for minute in range(start, min(start + MINUTES_PER_FILE, ITEMS)):
            for tag, content in elements(minute):
                element = ElementTree.SubElement(root, tag)
                for field, value in content.items():
                    ElementTree.SubElement(element, field).text = str(value)
        ElementTree.indent(root)
        file = folder / f"{start}.xml"
        ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
        os.utime(file, (START.timestamp() + start,) * 2)  # Spark reads files in the order of their times


def make_join(spark: SparkSession, folder: Path) -> wm.Join:
    """Return the join of the two streams, as Spark's XML source reads them."""

    def rows(stream: str, tag: str, schema: str) -> DataFrame:
        reader = spark.readStream.format("xml").option("rowTag", tag).option("maxFilesPerTrigger", 1)
        return reader.schema(schema).load(str(folder / stream))

    records = "sno long, read timestamp, ipaddr string"
    items = rows("news", "info", "sno long, posted timestamp, keyword string")
    ends = wm.punctuations(frame=rows("access", ENDS, records), on="sno", time="read")
    return wm.join(
        wm.stream("news", items, time="posted", constraints=[wm.key("sno")]),
        wm.stream("access", rows("access", "record", records), time="read", punctuations=ends),
        where="news.sno = access.sno",
        select="news.keyword AS keyword, access.ipaddr AS ipaddr",
    )


def show(query: wm.JoinQuery) -> None:
    """Print what each batch took in, and what was purged."""
    print(HEADINGS)
    for batch in query.progress:
        items, records = batch["inputRows"]["news"], batch["inputRows"]["access"] - batch["punctuations"]
        counts = batch["punctuations"], batch["purgedRows"], batch["distinctRows"]
        print(f"{batch['batchId']:5}  {items:5}  {records:7}  {counts[0]:12}  {counts[1]:6}  {counts[2]:4}")


def main(spark: SparkSession) -> None:
    """Write the feed, join it, show which keywords were read most and what was purged."""
    folder = Path(tempfile.mkdtemp())
    write(folder / "news", "NewsGeneral", news)
    write(folder / "access", "AccessRecord", access)
    writer = make_join(spark, folder).writeStream.option("checkpointLocation", f"{folder}/state")
    query = writer.trigger(availableNow=True).start(f"{folder}/readers")
    query.awaitTermination()
    readers = spark.read.parquet(f"{folder}/readers")
    readers.groupBy("keyword").count().orderBy("count", "keyword", ascending=False).show()
    show(query)


if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    main(session)
    session.stop()
