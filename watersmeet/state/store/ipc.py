"""Chunks as bytes: record batches of an Arrow IPC stream, each with its own checksum."""

from collections.abc import Sequence

import pyarrow as pa

from watersmeet.errors import AFRESH, StateError
from watersmeet.state.chunks.chunk import Place
from watersmeet.state.store.sealed import digest


def read_batch(source: pa.Buffer, place: Place, checked: bool = False) -> pa.RecordBatch:
    """Return the record batch that holds a chunk's rows; its checksum need not be right twice.

    Raises:
        StateError: If it does not match the checksum the manifest holds.
    """
    head = 8 + int.from_bytes(source[4:8], "little")  # a marker, the length of the schema, and as many bytes
    schema = source.slice(0, min(head, place.offset))
    message = source.slice(place.offset, place.length)
    if not checked and digest(schema, message) != place.digest:
        raise StateError(f"The state file {place.path} fails its checksum; restore it or {AFRESH}.")
    return pa.ipc.read_record_batch(message, pa.ipc.read_schema(schema))


def encode(batches: Sequence[pa.RecordBatch], packed: bool = False) -> tuple[bytearray, list[tuple[int, int, str]]]:
    """Return the IPC stream that holds the batches, and for each of them (offset, length, digest).

    Args:
        batches: The batches.
        packed: Whether to compress them: they are then read into memory, not mapped.
    """
    schema = batches[0].schema.serialize()
    data, places = bytearray(schema), []
    for batch in batches:
        message = _packed(batch) if packed else batch.serialize()
        places.append((len(data), message.size, digest(schema, message)))
        data += message
    return data, places


def _packed(batch: pa.RecordBatch) -> pa.Buffer:
    """Return the compressed message of a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages.read_next_message()  # the schema
    return messages.read_next_message().serialize()
