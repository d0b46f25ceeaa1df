"""Error messages for failures of batches, and of Spark itself: a sentence instead of a stack of the JVM's frames."""

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from watersmeet.errors import AFRESH, StateError
from watersmeet.spark.checkpoint.lease import Lease
from watersmeet.spark.checkpoint.offsets import in_the_way
from watersmeet.spark.run.versions import describe_jar_mismatch
from watersmeet.spark.sql.catalyst import error_sentence
from watersmeet.state.store.store import Store

FULL = r"No space left on device|Disk quota exceeded"
READ_ONLY = r"Read-only file system|Permission denied"
CONCURRENT = r"Concurrent update to the log|Multiple streaming queries are concurrently using"
"""Spark's messages if another run has written the file of a log that it was about to write."""
UNREADABLE = r"end-of-input|[Ll]og file"
"""Parts of Spark's messages about a file of its own that it can't read."""
LAST = 2
"""How many of the last files of each log are checked."""
DATA_ERROR = r"SQLSTATE: (22|38|39|P0)|PythonException|Python worker"
"""Marks of errors that are caused by the data, or by the user's functions."""
DISK_ERROR = r"No space left on device|Disk quota exceeded|Read-only file system"
"""Marks of errors of a disk, also in a task."""


def is_data_error(text: str) -> bool:
    """Tell whether an error is caused by the data or the user's functions; a task without disk space looks alike."""
    return bool(re.search(DATA_ERROR, text)) and not re.search(DISK_ERROR, text)


def describe_error(error: BaseException) -> str:
    """Return an error's message, with the file that it is about."""
    if isinstance(error, OSError):
        files = [name for name in (error.filename, error.filename2) if name]
        return f"{error.strerror or error}{f' ({files[-1]})' if files else ''}"
    if isinstance(error, PySparkException | Py4JError):
        return describe_jar_mismatch(error) or re.sub(r"^java[\w.]*: ", "", error_sentence(error))
    return f"{type(error).__name__}: {error}"


def failure(error: Exception, checkpoint: Store, lease: Lease) -> StateError:
    """Return the error that explains why Spark ended a query outside all batches, or did not start it.

    Args:
        error: The error that Spark raised.
        checkpoint: The folder with Spark's part of the checkpoint.
        lease: The run's lease.
    """
    text = str(error).partition("=== Streaming Query ===")[0]  # the plan follows, with the user's own words
    return StateError(_describe_failure(error, text, checkpoint, lease))


def _describe_failure(error: Exception, text: str, checkpoint: Store, lease: Lease) -> str:
    """Return why Spark's query failed and what to do, from the error's text; reads the checkpoint's files to tell."""
    root, again = checkpoint.root, "start again"
    with suppress(OSError):  # if the lease can't be read, the error itself says why
        if loss := lease.loss():
            return str(loss)
    if match := re.search(FULL, text):
        return f"{match[0]} for Spark's part of the checkpoint at {root}; nothing is lost: free some space and {again}."
    if ".tmp" in text and (match := re.search(READ_ONLY, text)):
        return f"{match[0]} under Spark's part of the checkpoint at {root}; make it writable and {again}."
    if re.search(CONCURRENT, text):  # [!] and the lease is held: this is the run that counts
        return (
            f"Another run, such as one that was suspended and has woken up, has written to Spark's part of the "
            f"checkpoint at {root}; nothing is lost: {again}."
        )
    if "MISSING_METADATA_FILE" in text:
        return f"Spark's file metadata under {root} is missing; {_remedy('metadata')}."
    if re.search(UNREADABLE, text) and (path := next(_cut_short(checkpoint), None)):
        how = "is empty or cut short, as a loss of power may leave it"
        return f"Spark's file {path} under {root} {how}; {_remedy(path)}."
    if "LOCATION_NOT_EMPTY" in text and (path := in_the_way(checkpoint)):
        return _describe_obstacle(root, path)
    if why := describe_jar_mismatch(error):
        return f"Spark could not read new tuples: {why}."
    message = re.sub(r"^Query \[.*?\] terminated with exception: ", "", error_sentence(error))
    return f"Spark raised an error: {message}; start the query again once that is fixed."


def _remedy(path: str) -> str:
    """Return how to repair a file of Spark's; most can't be rebuilt from anything else."""
    if path == "metadata":  # any id will do
        content = json.dumps({"id": str(uuid.uuid4())})
        return f"it only holds Spark's id of the query: remove .metadata.crc, write {content} into it and start again"
    if path.startswith("commits/"):
        return "remove it and start again, as the join knows itself which batches are done"
    return f"restore it or {AFRESH}"


def _describe_obstacle(root: str, path: str) -> str:
    """Return why Spark can't begin where a file is in its part of the checkpoint, and what to do."""
    if re.fullmatch(r"commits/\d+|state/.*", path):
        return f"Spark's part of the checkpoint at {root} has {path}, but no offsets; restore them or {AFRESH}."
    return (
        f"{path} under {root} is in the way, as Spark begins only where its logs are empty; remove it and start again."
    )


def _cut_short(checkpoint: Store) -> Iterator[str]:
    """Yield the last files of Spark's logs, and its metadata file, that are empty or cut short."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for name in (name for log in ("offsets", "sources", "commits") for name in checkpoint.names(log)):
        if match := re.fullmatch(r"(.+)/(\d+)", name):
            numbers[match[1]].append(int(match[2]))
    last = (f"{log}/{number}" for log, all in numbers.items() for number in sorted(all)[-LAST:])
    for path in ("metadata", *last):
        content = checkpoint.read(path)
        if content is not None and not _is_complete(content):
            yield path


def _is_complete(content: bytes) -> bool:
    """Tell whether the last line of a file is not cut short: JSON in it can be parsed."""
    line = content.strip(b"\0").decode(errors="replace").rpartition("\n")[2]
    document = re.search(r"[{\[].*", line)
    try:
        json.loads(document[0] if document else "0")
    except ValueError:
        return False
    return bool(line)
