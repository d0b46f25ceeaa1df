"""Why Spark itself ended a query, or did not begin it, in a sentence; what it raises is a stack of the JVM's frames."""

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterator

from watersmeet.errors import AFRESH, StateError
from watersmeet.spark.checkpoint.lease import Lease
from watersmeet.spark.checkpoint.offsets import in_the_way
from watersmeet.spark.run.versions import misfit
from watersmeet.spark.sql.catalyst import said
from watersmeet.state.manifest.leases import last_number
from watersmeet.state.store.store import Store

FULL = r"No space left on device|Disk quota exceeded"
READ_ONLY = r"Read-only file system|Permission denied"
CONCURRENT = r"Concurrent update to the log|Multiple streaming queries are concurrently using"
"""What Spark says once another run has written the file of a log that it was about to write."""
UNREADABLE = r"end-of-input|[Ll]og file"
"""What it says of a file of its own that it can't read."""
LAST = 2
"""How many of the last files of each log are looked at."""


def failure(error: Exception, checkpoint: Store, lease: Lease) -> StateError:
    """Return why Spark ended a query outside all batches, or did not begin it.

    Args:
        error: What Spark raised.
        checkpoint: The folder that Spark keeps its part of the checkpoint in.
        lease: The run's lease.
    """
    text = str(error).partition("=== Streaming Query ===")[0]  # what follows is the plan, with the user's own words
    return StateError(_sentence(error, text, checkpoint, lease))


def _sentence(error: Exception, text: str, checkpoint: Store, lease: Lease) -> str:
    root, again = checkpoint.root, "start again"
    if match := re.search(FULL, text):
        return f"{match[0]} for Spark's part of the checkpoint at {root}; nothing is lost: free some space and {again}."
    if ".tmp" in text and (match := re.search(READ_ONLY, text)):
        return f"{match[0]} under Spark's part of the checkpoint at {root}; make it writable and {again}."
    if re.search(CONCURRENT, text) or (".tmp" in text and last_number(lease.store) > lease.number):
        return f"Another run has taken over the checkpoint at {root}, and written to Spark's part; this one stops here."
    if "MISSING_METADATA_FILE" in text:
        return f"Spark's file metadata under {root} is missing; {_remedy('metadata')}."
    if re.search(UNREADABLE, text) and (path := next(_cut_short(checkpoint), None)):
        how = "is empty or cut short, as a loss of power may leave it"
        return f"Spark's file {path} under {root} {how}; {_remedy(path)}."
    if "LOCATION_NOT_EMPTY" in text and (path := in_the_way(checkpoint)):
        return _obstacle(root, path)
    if why := misfit(error):
        return f"Spark could not read new tuples: {why}."
    says = re.sub(r"^Query \[.*?\] terminated with exception: ", "", said(error))
    return f"Spark raised an error: {says}; start the query again once that is fixed."


def _remedy(path: str) -> str:
    """Return what to do about a file of Spark's; most hold what nothing else does."""
    if path == "metadata":  # any id will do
        content = json.dumps({"id": str(uuid.uuid4())})
        return f"it only holds Spark's id of the query: remove .metadata.crc, write {content} into it and start again"
    if path.startswith("commits/"):
        return "remove it and start again, as the join knows itself which batches are done"
    return f"restore it or {AFRESH}"


def _obstacle(root: str, path: str) -> str:
    if re.fullmatch(r"commits/\d+|state/.*", path):
        return f"Spark's part of the checkpoint at {root} has {path}, but no offsets; restore them or {AFRESH}."
    return (
        f"{path} under {root} is in the way, as Spark begins only where its logs are empty; remove it and start again."
    )


def _cut_short(checkpoint: Store) -> Iterator[str]:
    """Yield the last files of Spark's logs, and what says whose they are, as far as they are not whole."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for name in (name for log in ("offsets", "sources", "commits") for name in checkpoint.names(log)):
        if found := re.fullmatch(r"(.+)/(\d+)", name):
            numbers[found[1]].append(int(found[2]))
    last = (f"{log}/{number}" for log, all in numbers.items() for number in sorted(all)[-LAST:])
    for path in ("metadata", *last):
        data = checkpoint.read(path)
        if data is not None and not _is_whole(data):
            yield path


def _is_whole(data: bytes) -> bool:
    """Tell whether the last line of a file is not cut short: as far as it is JSON, what begins also ends."""
    line = data.strip(b"\0").decode(errors="replace").rpartition("\n")[2]
    begun = re.search(r"[{\[].*", line)
    try:
        json.loads(begun[0] if begun else "0")
    except ValueError:
        return False
    return bool(line)
