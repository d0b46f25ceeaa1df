"""The news feed: each record of access meets its news, and Spark reads punctuations by their own tag."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import news


@pytest.mark.spark
def test_every_record_finds_its_keyword(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    news.main(spark)
    told = capsys.readouterr().out.splitlines()
    lines = [[cell.strip() for cell in line.split("|")[1:3]] for line in told]
    shown = {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}
    records = [content for at in range(news.ITEMS) for tag, content in news.access(at) if tag == "record"]
    assert shown == Counter(news.KEYWORDS[int(str(record["sno"])) % len(news.KEYWORDS)] for record in records)
    assert sum(shown.values()) == news.ITEMS * news.RECORDS
    batches = [[int(cell) for cell in line.split()] for line in told[told.index(news.HEADINGS) + 1 :]]
    assert [sum(column) for column in list(zip(*batches, strict=True))[1:4]] == [
        news.ITEMS,
        news.ITEMS * news.RECORDS,
        news.ITEMS - news.LATEST + 1,
    ]
    came = sum(items + records for _, items, records, *_ in batches)
    assert came == sum(batch[4] for batch in batches) + batches[-1][5]  # nothing is lost on the way
    assert all(kept < came / 3 for *_, kept in batches)


@pytest.mark.spark
def test_both_streams_are_closed(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("news", "access"):
        (tmp_path / name).mkdir()
    news.make_join(spark, tmp_path).explain()
    told = capsys.readouterr().out
    assert "closed by `news.sno = access.sno` and the key of news.sno" in told
    assert "closed by `news.sno = access.sno` and punctuations of access.sno" in told
    assert "kept for ever" not in told


@pytest.mark.spark
def test_punctuations_have_a_tag_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    news.write(tmp_path / "access", "AccessRecord", news.access)
    reader = spark.read.format("xml").schema("sno long, read timestamp, ipaddr string")
    read = {tag: reader.option("rowTag", tag).load(str(tmp_path / "access")).collect() for tag in ("record", news.ENDS)}
    assert len(read["record"]) == news.ITEMS * news.RECORDS
    assert sorted(row.sno for row in read[news.ENDS]) == list(range(news.ITEMS - news.LATEST + 1))
    last = {sno: max(row.read for row in read["record"] if row.sno == sno) for sno in {r.sno for r in read["record"]}}
    assert all(row.read > last[row.sno] and row.ipaddr == "*" for row in read[news.ENDS] if row.sno in last)
