"""The Kafka demo without a broker: its brute force, its verdict, what it says; and what fetches servers."""

import io
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from examples import kafka as demo
from examples.servers import fetch, postgres
from examples.servers.client import Record


class Fake:
    """A client and a reader that keep to themselves what they are given."""

    def __init__(self, records: list[Record] | None = None) -> None:
        self.sent: list[tuple[str, dict[str, Any], int]] = []
        self.flushed = False
        self._records = records or []

    def send(self, topic: str, value: str, partition: int) -> None:
        self.sent.append((topic, json.loads(value), partition))

    def flush(self) -> None:
        self.flushed = True

    def poll(self) -> list[Record]:
        found, self._records = self._records, []
        return found


QUOTES = {
    "london": [(100.0, 102.0), (100.5, 101.0)],
    "newyork": [(101.0, 101.2), (103.0, 101.2)],
    "tokyo": [(102.0, 100.0), (104.5, 100.0), (102.9, 100.8)],
}


def results(*falls: tuple[str, int, int, int]) -> demo.Results:
    records = [Record(key, json.dumps({"london": a, "newyork": b, "tokyo": c, "sent": 0}), 0) for key, a, b, c in falls]
    made = demo.Results(cast(Any, Fake(records)))
    assert made.poll() and not made.poll()
    return made


def test_the_brute_force() -> None:
    """Less than three seconds from the first to the last; 100.0 and 103.0 are too far apart, and so is 104.5."""
    assert demo.brute_force(QUOTES) == {demo.Fall(0, 0, 0)}
    assert demo.brute_force(dict.fromkeys(demo.TOPICS, ())) == set()


def test_the_verdict() -> None:
    right, sentence = demo.verdict(results(("k", 0, 0, 0), ("k", 0, 0, 0)), {demo.Fall(0, 0, 0)})
    assert right and "1 records were duplicates" in sentence
    right, sentence = demo.verdict(results(("k", 0, 0, 0), ("l", 0, 0, 0)), {demo.Fall(0, 0, 0)})
    assert not right and "0 missing, 1 too many" in sentence
    right, sentence = demo.verdict(results(("k", 1, 1, 1)), {demo.Fall(0, 0, 0)})
    assert not right and "1 missing, 1 too many" in sentence


def test_the_feed() -> None:
    to = Fake()
    feed = demo.Feed(cast(Any, to), demo.Settings(rate=50, seconds=0.3))
    feed.run()
    assert to.flushed and len(to.sent) == sum(map(len, feed.sent.values())) > 0
    topic, row, partition = to.sent[0]
    assert row["ts"].endswith("Z") and demo.iso(feed.sent[topic][0][0]) == row["ts"] and partition in (0, 1)


class Query:
    """A query that has read everything."""

    isActive = True
    progress = ({"inputRows": {"london": 2}, "durationMs": {"total": 500.0}},)


def test_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "QUIET", 0.05)
    console = Console(record=True, width=120, file=io.StringIO())
    feed = demo.Feed(cast(Any, Fake()), demo.Settings(), {"london": [(1.0, 1.0), (2.0, 2.0)]})
    fed = threading.Thread(target=lambda: None)
    fed.start()
    fed.join()
    view = demo.View(console, feed, results(("k", 0, 0, 0)), cast(Any, Query()))
    view.follow(fed)
    assert "2 quotes sent" in view.line() and "1 results" in view.line() and "last batch: 0.5 s" in view.line()


# -- what fetches servers


def test_without_maven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fetch, "CACHE", tmp_path / "cache")
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert demo.main(["--output", str(tmp_path / "out")]) == 2
    assert (
        "The demo needs Maven to fetch Kafka's jars: install it (Debian and Ubuntu: maven)" in capsys.readouterr().err
    )


def test_a_folder_is_made_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fetch, "CACHE", tmp_path)
    said = list[str]()

    def half(to: Path) -> None:
        to.mkdir()
        (to / "a").write_text("a")
        fetch.run(sys.executable, "-c", "print('no space'); raise SystemExit(1)")

    with pytest.raises(RuntimeError, match="no space"):
        fetch.once("it", half, said.append)
    assert fetch.once("it", lambda to: to.mkdir(), said.append) == tmp_path / "it"
    assert not (tmp_path / "it" / "a").exists() and said[-1] == "Fetched it: 0 MB."
    assert fetch.once("it", half) == tmp_path / "it"


def test_progress_of_downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fetch, "CACHE", tmp_path)
    said = list[str]()
    lines = ["a/b.jar (3 MB at 1 MB/s)", "b.pom (1 kB at 1 MB/s)"]
    program = f"for line in {lines!r}: print('[INFO] Downloaded from x: http://x/' + line)"
    fetch.run(sys.executable, "-c", program, tell=said.append)
    assert said == ["  b.jar (3 MB at 1 MB/s)"]


def test_postgres_that_is_not_there_or_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(postgres, "PLACES", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(fetch.MissingTool, match="needs PostgreSQL: install it"):
        postgres.programs()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(RuntimeError, match="false failed"):
        postgres._run(["false"], tmp_path)
    (tmp_path / "pg_isready").symlink_to("/bin/false")
    (tmp_path / "log").write_text("no more memory")
    with subprocess.Popen(["false"]) as dead, pytest.raises(RuntimeError, match="didn't start: no more memory"):
        dead.wait()
        postgres._wait(tmp_path, tmp_path, dead)
