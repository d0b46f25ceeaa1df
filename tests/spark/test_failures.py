"""What Spark raises outside batches, as a sentence; what it says there is quoted from its errors."""

from pathlib import Path

import pytest

from watersmeet.spark.checkpoint.lease import take
from watersmeet.spark.run.failures import failure
from watersmeet.state.store.store import Store

HEAD = "[STREAM_FAILED] Query [id = 5, runId = 6] terminated with exception:"
TEMPORARY = "/c/offsets/.3.5b83f0d0.tmp"


def sentence(folder: Path, text: str, is_lost: bool = False) -> str:
    lease = take(Store(f"{folder}/watersmeet"))
    if is_lost:
        lease.store.write(f"leases/{lease.number + 1:012d}.json", b"another's")
    told = str(failure(RuntimeError(text), Store(str(folder)), lease)).replace(str(folder), "HERE")
    lease.end()
    assert "\n" not in told and told.endswith(".")
    return told


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "No space left on device SQLSTATE: XXKST",
            "No space left on device for Spark's part of the checkpoint at HERE",
        ),
        (
            "Disk quota exceeded",
            "Disk quota exceeded for Spark's part of the checkpoint at HERE; nothing is lost: free",
        ),
        (f"{TEMPORARY} (Read-only file system)", "Read-only file system under Spark's part of the checkpoint at HERE;"),
        (f"{TEMPORARY} (Permission denied)", "Permission denied under Spark's part of the checkpoint at HERE; make it"),
        ("/in/a (Permission denied)", "Spark raised an error: /in/a (Permission denied); start the query again once"),
        ("Concurrent update to the log. Multiple streaming jobs detected for 3.", "Another run, such as one that was"),
        ("Multiple streaming queries are concurrently using file:/c/offsets", "Another run, such as one that was"),
        ("java.lang.NoSuchMethodError: 'int f()'", "Spark could not read new tuples: a jar is for another version of"),
        (
            "batch 0 doesn't exist\n=== Streaming Query ===\nNo space left",
            "Spark raised an error: batch 0 doesn't exist;",
        ),
    ],
)
def test_sentences(tmp_path: Path, text: str, says: str) -> None:
    assert sentence(tmp_path, f"{HEAD} {text}").startswith(says)


def test_a_file_that_another_run_has_cleared(tmp_path: Path) -> None:
    """[!] Whoever takes over removes what is unfinished: who wakes up in the middle of a file can't finish it."""
    text = f"{HEAD} rename source {TEMPORARY} not found."
    assert sentence(tmp_path, text).startswith("Spark raised an error: rename source")
    assert sentence(tmp_path, text, is_lost=True).startswith("Another run has taken over the checkpoint at HERE")


def test_a_lost_lease_explains_whatever_follows(tmp_path: Path) -> None:
    text = f"{HEAD} batch 2 doesn't exist"
    assert sentence(tmp_path, text, is_lost=True).startswith("Another run has taken over the checkpoint at HERE")


def test_files_of_sparks_that_are_whole_are_not_blamed(tmp_path: Path) -> None:
    store, text = Store(str(tmp_path)), f"{HEAD} Unexpected end-of-input"
    store.write("metadata", b'{"id":"5b83f0d0"}')
    store.write("offsets/7", b'v1\n{"batchWatermarkMs":0}\n{"logOffset":3}\n-')
    store.write("offsets/8", b'v2\n{"batchWatermarkMs":0}\n0:{"logOffset":3}\n1:17')
    store.write("sources/0/8", b'\0v1\n{"in":{"0":0}}')
    store.write("commits/7", b'v1\n{"nextBatchWatermarkMs":0}')
    assert sentence(tmp_path, text).startswith("Spark raised an error: Unexpected end-of-input")
    store.write("offsets/8", b'v2\n{"batchWatermarkMs":0}\n0:{"logOf')
    assert sentence(tmp_path, text).startswith("Spark's file offsets/8 under HERE is empty or cut short, as a loss of")
