"""The manifest of a batch: which chunks are live, who owns them, how far time has advanced.

It is written once per batch, when its results are ready; the files that it names are then delivered. Most manifests are
deltas on the one before and every 32nd is a snapshot: a commit does not grow with the number of chunks, and a restart
reads few files. Each holds a digest of the one before, so that files of different histories are never combined. Which
of them count, if several runs have written some: see `generations`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from watersmeet.errors import AFRESH, StateError
from watersmeet.metadata.constraints import MARKS, ConstraintState, ConstraintStates
from watersmeet.spilling.units import Ledger
from watersmeet.state.chunks.chunk import CHUNKS, Chunk, lies_in
from watersmeet.state.manifest import documents, generations
from watersmeet.state.manifest.delivery import Delivery
from watersmeet.state.manifest.view import RunningStatistics
from watersmeet.state.store.file_format import digest, seal, unseal
from watersmeet.state.store.store import Store

FOLDER = "manifests"
SNAPSHOT_EVERY = 32


@dataclass(frozen=True, slots=True)
class StreamState:
    """The state of a stream after a batch.

    Attributes:
        latest: The latest event time so far.
        arrived: How many tuples were accepted so far; the next arrival ordinal of a count window.
        idle: Whether the stream no longer holds back the watermark.
        active_at: The driver's clock (microseconds) when the stream last brought rows; None before the first batch.
        rows: Tuples that the batch brought.
        advance: How far event time advanced in the batch.
        rate: Tuples a second of event time, smoothed.
    """

    latest: int | None = None
    arrived: int = 0
    idle: bool = False
    active_at: int | None = None
    rows: int = 0
    advance: int = 0
    rate: float = 0.0

    def to_json(self) -> list[Any]:
        """Return the state as the manifest stores it."""
        return [getattr(self, name) for name in self.__slots__]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state after a batch.

    Attributes:
        batch: The batch; -1 before the first. Rounds, which pay what is owed between batches, share the numbering.
        streams: The state of each stream.
        chunks: The live chunks by id.
        watermark: The join's watermark; None for minus infinity.
        learned: Measurements and notes for the batches after it.
        progress: The progress of this batch.
        input: What identifies the input that Spark gave the batch.
        digest: The digest of its file; empty as long as it has none.
        constraints: The state of each stream's constraints.
        unpurged: How many batches have brought rows since dead tuples were last looked for.
        ledger: What is owed, and what the next batch pays of it.
        settled: No later result can lie before this time; None for minus infinity.
        offered: The source's number for the last batch that brought rows.
        deliveries: The files that appear in output folders once the manifest is written.
        final: Whether the checkpoint is closed for good: no state is left, and no row is accepted any more.
        chain: The manifest files that it consists of, back to the last snapshot; empty as long as it has none.
        inner: The state of the joins that are streams of this one, by position; one file holds them all, so that
            they are committed together.
    """

    batch: int
    streams: tuple[StreamState, ...]
    chunks: Mapping[str, Chunk] = field(default_factory=dict)
    watermark: int | None = None
    learned: RunningStatistics = field(default_factory=RunningStatistics)
    progress: Mapping[str, Any] = field(default_factory=dict)
    input: str = ""
    digest: str = ""
    inner: Mapping[int, "Manifest"] = field(default_factory=dict)
    unpurged: int = 0
    constraints: ConstraintStates = ()
    ledger: Ledger = field(default_factory=Ledger)
    settled: int | None = None
    offered: int = -1
    deliveries: tuple[Delivery, ...] = ()
    final: bool = False
    chain: tuple[str, ...] = ()

    @property
    def files(self) -> frozenset[str]:
        """Every file of chunks and of marks that the manifest names."""
        paths = frozenset(file for chunk in self.chunks.values() for file in chunk.files)
        paths = paths.union(*(state.paths for stream in self.constraints for state in stream))
        return paths.union(*(manifest.files for manifest in self.inner.values()))

    @property
    def has_spilled_units(self) -> bool:
        """Whether this join, or one within it, has spilled units."""
        return bool(self.ledger.units) or any(manifest.has_spilled_units for manifest in self.inner.values())

    def follow(self, **changes: Any) -> "Manifest":
        """Return the manifest of the next batch, with some changes."""
        return replace(self, batch=self.batch + 1, digest="", **changes)


def path_of(batch: int, generation: str = "") -> str:
    """Return the path of the manifest of a batch, written under a lease."""
    return generations.path_of(FOLDER, batch, generation)


def newest(store: Store) -> int | None:
    """Return the last batch that has a manifest; None if there is none."""
    return _newest_batch(store, generations.valid_files(store, FOLDER))


def newest_path(store: Store) -> str | None:
    """Return the path of the manifest of the last batch that has one; another run's has another path."""
    files = generations.valid_files(store, FOLDER)
    batch = _newest_batch(store, files)
    return None if batch is None else files[batch]


def last(store: Store) -> Manifest | None:
    """Return the manifest of the last batch that has one; None if there is none.

    Reads again if a running query has published one meanwhile: it may have removed files of those before.

    Raises:
        StateError: If it, or one that it builds on, is damaged or missing.
    """
    while True:
        files = generations.valid_files(store, FOLDER)  # [!] once: another may become the newest meanwhile
        batch = _newest_batch(store, files)
        if batch is None:
            return None
        try:
            return _load_listed(store, files, batch)
        except StateError:
            if newest_path(store) == files[batch]:
                raise


def _load_listed(store: Store, files: Mapping[int, str], batch: int) -> Manifest:
    """Return the manifest of a batch that has a file.

    Raises:
        StateError: If it, or one that it builds on, is damaged or missing. [!] Never take that for no state.
    """
    manifest = _load(store, files, batch)
    if manifest is None:
        raise StateError(
            f"The manifest of batch {batch} under {store.root} is listed, but can't be read; restore it or {AFRESH}."
        )
    return manifest


def _newest_batch(store: Store, files: dict[int, str]) -> int | None:
    """Return the last batch of those that have files; an empty one was never published."""
    return next((batch for batch in reversed(files) if store.read(files[batch]) != b""), None)


def _is_snapshot(batch: int) -> bool:
    return batch % SNAPSHOT_EVERY == 0


def publish(store: Store, manifest: Manifest, before: Manifest, generation: str = "") -> Manifest | None:
    """Write a manifest and return it; None, changing nothing, if this generation has one for its batch."""
    text, path = seal(_body(manifest, before) | _header(manifest, before)), path_of(manifest.batch, generation)
    if not store.publish(path, text):
        return None
    chain = (path,) if _is_snapshot(manifest.batch) else (*before.chain, path)
    return replace(manifest, digest=digest(text), chain=chain)


def _header(manifest: Manifest, before: Manifest) -> dict[str, Any]:
    """Return what is stored once for a join and all within it."""
    deliveries = [delivery.to_json() for delivery in manifest.deliveries]
    return {"input": manifest.input, "follows": before.digest, "deliveries": deliveries}


def _body(manifest: Manifest, before: Manifest) -> dict[str, Any]:
    """Return what a manifest's file contains: chunks as a snapshot or a delta, and everything else in full."""
    state = _snapshot(manifest) if _is_snapshot(manifest.batch) else _delta(manifest, before)
    return state | {
        "batch": manifest.batch,
        "streams": [stream.to_json() for stream in manifest.streams],
        "watermark": manifest.watermark,
        "unpurged": manifest.unpurged,
        "ledger": manifest.ledger.to_json(),
        "settled": manifest.settled,
        "offered": manifest.offered,
        "final": manifest.final,
        "promises": [[state.to_json() for state in stream] for stream in manifest.constraints],
        "learned": manifest.learned.to_json(),
        "progress": manifest.progress,
        "inner": {str(at): _body(inner, before.inner.get(at, inner)) for at, inner in manifest.inner.items()},
    }


def _snapshot(manifest: Manifest) -> dict[str, Any]:
    return {"chunks": [chunk.to_json() for chunk in manifest.chunks.values()]}


def _delta(manifest: Manifest, before: Manifest) -> dict[str, Any]:
    """Return how the chunks differ from those of the manifest before: added, removed, or moved to other owners."""
    old, new = before.chunks, manifest.chunks
    return {
        "added": [c.to_json() for key, c in new.items() if key not in old or _is_rewritten(old[key], c)],
        "removed": [key for key in old if key not in new],
        "moved": {key: c.owners for key, c in new.items() if key in old and c.owners != old[key].owners},
    }


def _is_rewritten(old: Chunk, new: Chunk) -> bool:
    """Tell whether more than the owners of a chunk has changed."""
    return old.deleted != new.deleted or old.unit != new.unit


def load(store: Store, batch: int) -> Manifest | None:
    """Return the manifest of a batch; None if there is none.

    Raises:
        StateError: If it, or one that it builds on, is damaged or missing.
    """
    return _load(store, generations.valid_files(store, FOLDER), batch)


def _load(store: Store, valid_files: Mapping[int, str], batch: int) -> Manifest | None:
    """See `load`; `valid_files` are the manifests that count."""
    newest = _read(store, valid_files, batch)
    if newest is None:
        return None
    chain = [newest]
    while "chunks" not in chain[-1].body:
        chain.append(_read_before(store, valid_files, chain[-1], batch))
    manifest: Manifest | None = None
    for file in reversed(chain):
        manifest = replace(_manifest(file.body, manifest), input=file.body["input"], digest=file.digest)
    deliveries = tuple(map(Delivery.from_json, newest.body["deliveries"]))
    return manifest and replace(manifest, deliveries=deliveries, chain=tuple(file.path for file in reversed(chain)))


def recent_progress(store: Store, batch: int) -> list[Mapping[str, Any]]:
    """Return the progress of the batches since the last snapshot, up to one that was loaded."""
    valid_files = generations.valid_files(store, FOLDER)
    files = (_read(store, valid_files, at) for at in range(batch - batch % SNAPSHOT_EVERY, batch + 1))
    return [file.body["progress"] for file in files if file is not None and file.body["progress"]]


class _File(NamedTuple):
    """A manifest file: its path, its content and its digest."""

    path: str
    body: dict[str, Any]
    digest: str


def _read(store: Store, files: Mapping[int, str], batch: int) -> _File | None:
    """Return the file of a batch's manifest; None if there is none.

    Raises:
        StateError: If it is damaged, or belongs to another batch.
    """
    path = files.get(batch)
    text = None if path is None else store.read(path)
    if path is None or text is None:
        return None
    body = unseal(text, f"The manifest of batch {batch} under {store.root}", documents.ManifestDocument)
    if body["batch"] != batch:
        raise StateError(
            f"The manifest of batch {batch} under {store.root} belongs to batch {body['batch']}; restore it or "
            f"{AFRESH}."
        )
    return _File(path, body, digest(text))


def _read_before(store: Store, files: Mapping[int, str], file: _File, last: int) -> _File:
    """Return the file that another one builds on; `last` is the batch that is being loaded.

    Raises:
        StateError: If it is missing or damaged, or not the one that was built on.
    """
    batch = file.body["batch"] - 1
    before = _read(store, files, batch)
    if before is None:
        raise StateError(
            f"The manifest of batch {batch} under {store.root} is missing, and batch {last} builds on it; restore it "
            f"or {AFRESH}."
        )
    if before.digest != file.body["follows"]:
        raise StateError(
            f"The manifest of batch {batch} under {store.root} is not the one that batch {last} builds on; restore it "
            f"or {AFRESH}."
        )
    return before


def _chunk(plain: Mapping[str, Any]) -> Chunk:
    """Return a chunk of a manifest.

    Raises:
        StateError: If its files lie outside the folder of chunks; only an edited manifest can contain that.
    """
    chunk = Chunk.from_json(plain)
    for file in chunk.files:
        if not lies_in(file, CHUNKS):
            raise StateError(
                f"A manifest names the state file {file!r}, which is not in the folder {CHUNKS}/ of its store; "
                f"restore the manifest or {AFRESH}."
            )
    return chunk


def _constraint_state(plain: Sequence[Any]) -> ConstraintState:
    """Return the state of a constraint in a manifest.

    Raises:
        StateError: If its files lie outside the folder of marks; only an edited manifest can contain that.
    """
    state = ConstraintState.from_json(plain)
    for file in sorted(state.paths):
        if not lies_in(file, MARKS):
            raise StateError(
                f"A manifest names the marks {file!r}, which are not in the folder {MARKS}/ of its store; restore the "
                f"manifest or {AFRESH}."
            )
    return state


def _apply(delta: Mapping[str, Any], chunks: Mapping[str, Chunk]) -> dict[str, Chunk]:
    live = {key: chunk for key, chunk in chunks.items() if key not in set(delta["removed"])}
    for key, owners in delta["moved"].items():
        live[key] = live[key].owned_by(owners)
    return live | {plain["id"]: _chunk(plain) for plain in delta["added"]}


def _manifest(body: Mapping[str, Any], before: Manifest | None) -> Manifest:
    """Return the manifest that a file's body describes, based on the one before if it is a delta.

    Raises:
        StateError: If it names files outside their folders.
    """
    chunks = {p["id"]: _chunk(p) for p in body["chunks"]} if before is None else _apply(body, before.chunks)
    inner = {int(at): _manifest(entry, before and before.inner[int(at)]) for at, entry in body["inner"].items()}
    return Manifest(
        batch=body["batch"],
        streams=tuple(StreamState(*stream) for stream in body["streams"]),
        chunks=chunks,
        watermark=body["watermark"],
        unpurged=body["unpurged"],
        ledger=Ledger.from_json(body["ledger"]),
        settled=body["settled"],
        offered=body["offered"],
        final=body.get("final", False),
        constraints=tuple(tuple(map(_constraint_state, stream)) for stream in body["promises"]),
        learned=RunningStatistics.from_json(body["learned"]),
        progress=body["progress"],
        inner=inner,
    )
