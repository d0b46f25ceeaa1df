"""What the files of a store look like, each with its checksum: documents, and chunks.

A document is JSON under a line that holds the format of state and a digest of the rest. Chunks are record batches of an
Arrow IPC stream, each with a digest of its own.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from watersmeet.errors import AFRESH, StateError, WatersmeetError
from watersmeet.state.chunks.chunk import Place
from watersmeet.state.store.shape import Misfit, check

FORMAT = 9
"""The version of the format of everything in a store; a store of another version can't be read."""
DRAFT = ".draft"
"""The ending of files that are being written, beside the names that they are to have."""
_HEAD = re.compile(rb"watersmeet (\d+) ([0-9a-f]{32})")
_LONGEST_ERROR = 120
"""Characters of another error that are shown."""
_WAY_OUT = f"restore it or {AFRESH}"


def digest(*parts: Any) -> str:
    """Return a digest of bytes, long enough to rule out accidental collisions."""
    hash = hashlib.blake2b(digest_size=16)
    for part in parts:
        hash.update(part)
    return hash.hexdigest()


@contextmanager
def consistent(root: str) -> Iterator[None]:
    """Turn unexpected errors within a `with` into a StateError: documents of a store contradict each other.

    For readers of stores that they did not write. [!] Each document has the right shape, or it would not have been
    read; whether they fit together, as columns and their streams do, shows only in use. A bug of Watersmeet's looks the
    same: it is the cause of the error that is raised.

    Args:
        root: Where the store is.
    """
    try:
        yield
    except (WatersmeetError, OSError, NameError):  # the last is no fault of the documents
        raise
    except Exception as error:
        how = " ".join(f"{type(error).__name__}: {error}".split())
        raise StateError(
            f"The documents of the checkpoint at {root} do not fit together ({how[:_LONGEST_ERROR]}); {_WAY_OUT}."
        ) from error


def seal(body: Any) -> bytes:
    """Return the content of a document's file."""
    text = json.dumps(body).encode()
    return f"watersmeet {FORMAT} {digest(text)}\n".encode() + text


def unseal(content: bytes, what: str, kind: Any = Any, remedy: str = _WAY_OUT) -> Any:
    """Return the document that a file holds.

    [!] A digest detects damage, not forgery: anybody can seal a document.

    Args:
        content: The file's bytes.
        what: What it is and where, as the start of a sentence.
        kind: The type that it must have (`shape.py`).
        remedy: What to do if it is damaged.

    Raises:
        StateError: If it is damaged, has another version, or is not of this type.
    """
    head, _, text = content.partition(b"\n")
    if head.startswith(b"{"):  # as all were until format 3
        raise StateError(f"{what} is damaged, or an earlier version of Watersmeet wrote it; {remedy}.")
    header = _HEAD.fullmatch(head)
    if header and int(header[1]) != FORMAT:
        raise StateError(
            f"{what} is of format {int(header[1])}, and this version of Watersmeet reads format {FORMAT} only; "
            f"continue with the version that wrote it, or {AFRESH}."
        )
    if not header or header[2].decode() != digest(text):
        raise StateError(f"{what} is damaged; {remedy}.")
    try:
        return _read(text, kind)
    except (ValueError, RecursionError) as error:  # not JSON, too deep, or a Misfit
        how = str(error) if isinstance(error, Misfit) else "it is not readable JSON"
        raise StateError(f"{what} is not as Watersmeet writes it: {how}; {remedy}.") from None


def _read(text: bytes, kind: Any) -> Any:
    """Return a JSON document; raise a ValueError if it has another type, or holds half characters."""
    document = json.loads(text)
    if b"\\ud" in text.lower():  # [!] Half of a surrogate pair is not text: it can be neither printed nor written.
        json.dumps(document, ensure_ascii=False).encode()
    check(document, kind)
    return document


# -- chunks


def read_batch(source: pa.Buffer, place: Place, is_checked: bool = False) -> pa.RecordBatch:
    """Return the record batch of a chunk; a chunk `is_checked` if its checksum has been verified before.

    Raises:
        StateError: If it does not match the checksum in the manifest.
    """
    head = 8 + int.from_bytes(source[4:8], "little")  # a marker, the length of the schema, and as many bytes
    schema = source.slice(0, min(head, place.offset))
    message = source.slice(place.offset, place.length)
    if not is_checked and digest(schema, message) != place.digest:
        raise StateError(f"The state file {place.path} fails its checksum; restore it or {AFRESH}.")
    return pa.ipc.read_record_batch(message, pa.ipc.read_schema(schema))


def encode(batches: Sequence[pa.RecordBatch], compressed: bool = False) -> tuple[bytearray, list[tuple[int, int, str]]]:
    """Return the IPC stream of some batches, and the offset, length and digest of each.

    Args:
        batches: The batches.
        compressed: Whether to compress them: they are then read into memory, not mapped.
    """
    schema = batches[0].schema.serialize()
    stream, places = bytearray(schema), []
    for batch in batches:
        message = _compress(batch) if compressed else batch.serialize()
        places.append((len(stream), message.size, digest(schema, message)))
        stream += message
    return stream, places


def _compress(batch: pa.RecordBatch) -> pa.Buffer:
    """Return the compressed message of a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()  # the schema
    return messages.read_next_message().serialize()
