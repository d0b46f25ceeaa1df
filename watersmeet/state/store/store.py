"""The store: a folder of immutable files, on any file system that pyarrow opens."""

import errno
import os
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import pyarrow as pa
import pyarrow.fs as pafs

from watersmeet.errors import AFRESH, StateError
from watersmeet.limits import limits
from watersmeet.state.chunks.chunk import Chunk, Rows
from watersmeet.state.store import local_files, remote
from watersmeet.state.store.budget import Cache, OpenChunks, RowsKey, Value, most_open
from watersmeet.state.store.file_format import DRAFT, digest, read_batch
from watersmeet.state.store.local_files import (
    files_below,
    link,
    resolve_document,
    resolve_inside,
    sync,
    sync_bytes,
    sync_names,
)

TRIES = 3
"""How often a remote file is fetched if its copy on this host vanishes."""
PAGE = 4096
"""Files are mapped in pages of this many bytes; the objects for a file take about as many more."""
MOST_RUNS = 100
"""The number of query runs whose chunks a process remembers."""


@dataclass(frozen=True, slots=True)
class Store:
    """Files under one root; small enough to travel to every task.

    Names are never reused, so that caches by path stay valid.

    Attributes:
        root: A local path, or a URI that `pyarrow.fs` opens.
        durable: Whether files published on this host's file system survive a loss of power.
        open_bytes: The limit for chunks that a process keeps open; 0 for the default.
        confined: Whether somebody else may have filled the store: no link that leads out of it is followed, and the
            contents of files are validated before use. It is only read.
    """

    root: str
    durable: bool = False
    open_bytes: int = 0
    confined: bool = False

    @property
    def local(self) -> str | None:
        """The root as a path of this host's file system, or None if it is elsewhere."""
        if self.root.startswith("file:"):
            return "/" + self.root.removeprefix("file:").lstrip("/")
        return None if "://" in self.root else self.root

    def remote(self, path: str) -> tuple[pafs.FileSystem, str]:
        """Return the file system of a store that isn't local, and a file's path there."""
        connection = remote.connect(self.root)
        return connection.system, connection.at(path)

    def check(self) -> None:
        """Raise a DefinitionError if two runs could publish the same file."""
        if self.local is None:
            remote.check_creates(remote.connect(self.root), self.root)

    def write(self, path: str, content: Any) -> None:
        """Write a file whose name is new; readers learn its name only afterwards.

        Raises:
            StateError: If the disk is full; nothing of the file is left then.
        """
        if self.local is None:
            system, full = self.remote(path)
            system.create_dir(os.path.dirname(full), recursive=True)  # object stores have none, others want them
            with system.open_output_stream(full) as file:
                file.write(content)
            return
        target = Path(self.local, path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as file:
                file.write(content)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            target.unlink(missing_ok=True)
            raise StateError(
                f"{error.strerror} at {self.root}; nothing is lost: free some space and start again."
            ) from None

    def publish(self, path: str, content: bytes) -> bool:
        """Create a file atomically; return False, changing nothing, if it exists.

        In a remote store, True also if it exists with the same content.
        """
        if self.local is None:
            # [!] A client that lost the answer tries again, and the file exists: its own.
            return remote.connect(self.root).create(path, content) or self.read(path) == content
        target, draft = Path(self.local, path), self._draft(path, content)
        try:
            if self.durable:
                sync_bytes([str(draft)])
            is_new = link(draft, target)
        finally:
            draft.unlink(missing_ok=True)
        if self.durable:
            sync_names([str(target)])
        return is_new

    def sync(self, paths: Iterable[str]) -> None:
        """Write files through to the disk, if the store is durable; remote stores do so by themselves."""
        if self.durable and self.local is not None:
            sync(os.path.join(self.local, path) for path in paths)

    def overwrite(self, path: str, content: bytes) -> None:
        """Write a file that may exist. It must have only one writer; readers see the old bytes or the new."""
        if self.local is None:
            self.write(path, content)
            return
        os.replace(self._draft(path, content), Path(self.local, path))

    def _draft(self, path: str, content: bytes) -> Path:
        """Write a file of this host under a unique name, next to its final one."""
        draft = f"{path}.{uuid.uuid4().hex}{DRAFT}"
        self.write(draft, content)
        return Path(self.local or "", draft)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None if it doesn't exist.

        Raises:
            StateError: If the path leads out of a confined store, or the file there is too large for a document.
        """
        try:
            if self.local is None:
                return self._fetch(path, local_files.LARGEST if self.confined else None)
            return (resolve_document(self.local, path) if self.confined else Path(self.local, path)).read_bytes()
        except FileNotFoundError:
            return None

    def _fetch(self, path: str, most: int | None = None) -> bytes:
        """Return the bytes of a remote file.

        Raises:
            FileNotFoundError: If it doesn't exist.
            StateError: If it has more than so many.
        """
        system, full = self.remote(path)
        with system.open_input_file(full) as source:
            if most is not None and source.size() > most:
                raise StateError(
                    f"{self.root}/{path} has more than {most:,} bytes: no document of Watersmeet's is that large."
                )
            return bytes(source.read())

    def modified(self, path: str) -> float | None:
        """Return when a file was written, in seconds since the epoch by its file system's clock; None without one."""
        if self.local is None:
            system, full = self.remote(path)
            modified = system.get_file_info(full).mtime_ns
            return None if modified is None else float(modified / 1e9)
        try:
            return os.stat(Path(self.local, path)).st_mtime
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """List the files below a folder, none if there is no such folder.

        For sweeps and the files of runs only: chunks are never found by listing.

        Raises:
            StateError: If the folder of a confined store leads out of it.
        """
        if self.local is None:
            system, full = self.remote(folder)
            infos = system.get_file_info(pafs.FileSelector(full, recursive=True, allow_not_found=True))
            return [f"{folder}{info.path[len(full) :]}" for info in infos if info.type == pafs.FileType.File]
        below = os.path.join(self.local, folder)
        if self.confined and os.path.lexists(below):
            resolve_inside(self.local, folder)
        return [os.path.relpath(path, self.local) for path in files_below(below)]

    def drafts(self) -> list[str]:
        """List the drafts that lie directly under the root, where the documents of the query are."""
        if self.local is None:
            system, full = self.remote("")
            selector = pafs.FileSelector(full.rstrip("/"), allow_not_found=True)
            names = [info.base_name for info in system.get_file_info(selector)]
        else:
            names = next((files for _, _, files in os.walk(self.local)), [])
        return [name for name in names if name.endswith(DRAFT)]

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files and local copies of them, and close those that this process has open; missing ones are fine."""
        removed = frozenset(paths)
        _open_chunks.forget(lambda key: key.root == self.root and not removed.isdisjoint((key.path, key.ordinals)))
        for path in removed:
            try:
                if self.local is None:
                    self._copy_path(path).unlink(missing_ok=True)
                    system, full = self.remote(path)
                    system.delete_file(full)
                else:
                    os.unlink(Path(self.local, path))
            except FileNotFoundError:
                pass

    def retain(self, run: str, chunks: Iterable[Chunk]) -> None:
        """Close the chunks that a query run has named before but no longer names: their files are being removed.

        Local copies of these files are removed here.

        Args:
            run: The run; joins in one store have different ones.
            chunks: All chunks that it names now.
        """
        if (self.root, run) not in _run_chunks:  # another run may have ended, and its files have been removed
            _open_chunks.forget(lambda key: not Store(key.root)._local_path(key.path).exists())
        now = {_key_of(chunk) for chunk in chunks}
        before = _run_chunks.pop((self.root, run), frozenset())
        _run_chunks[self.root, run] = frozenset(now)
        while len(_run_chunks) > MOST_RUNS:
            del _run_chunks[next(iter(_run_chunks))]
        removed = before - now
        if removed:
            _open_chunks.forget(lambda key: key.root == self.root and key[1:4] in removed)
        if self.local is None:
            files = {file for path, _, ordinals in removed for file in (path, ordinals) if file is not None}
            for file in files - {file for path, _, ordinals in now for file in (path, ordinals)}:
                self._copy_path(file).unlink(missing_ok=True)

    def _map(self, path: str) -> pa.Buffer:
        """Memory-map a file; a remote one is fetched to disk first. Raises StateError if it is missing or empty."""
        for _ in range(TRIES):
            try:
                return _map_file(self._local_copy(path))
            except (FileNotFoundError, pa.ArrowInvalid):  # another process may have removed this host's copy
                if self.local is not None:
                    break
        raise self._damage(path, "is missing or empty")

    def map_digested(self, path: str) -> pa.Buffer:
        """Memory-map a file whose name contains its digest before the suffix.

        Raises:
            StateError: If it is missing or damaged.
        """
        buffer = self._map(path)
        if not path.rpartition(".")[0].endswith(f"-{digest(buffer)}"):
            raise self._damage(path, "fails its checksum")
        return buffer

    def _damage(self, path: str, how: str) -> StateError:
        return StateError(
            f"The state file {path} under {self.root} {how}: a manifest names it, "
            f"so results would be lost; restore it or {AFRESH}."
        )

    def is_gone(self, path: str) -> bool:
        """Tell whether a file has been removed, if that is known without asking another host."""
        return self.local is not None and not self._local_path(path).exists()

    def _local_path(self, path: str) -> Path:
        """Return the path of a file on this host, or of its copy if it is remote."""
        return Path(self.local, path) if self.local is not None else self._copy_path(path)

    def _local_copy(self, path: str) -> Path:
        """Return a file's path on this host; a remote file is copied there first.

        Raises:
            FileNotFoundError: If it doesn't exist.
            StateError: If it lies outside a confined store, or its copy would not be private.
        """
        file = resolve_inside(self.local, path) if self.confined and self.local is not None else self._local_path(path)
        if self.local is None and not file.exists():
            remote.save(file, self._fetch(path))
        return file

    def _copy_path(self, path: str) -> Path:
        """Return the path of this host's copy of a remote file."""
        return Path(remote.folder(), self.root.replace("/", "_"), path)

    def open(self, chunk: Chunk, time_type: pa.DataType) -> Rows:
        """Return the rows of a chunk, which stay open; damaged local copies of remote files are fetched again.

        Raises:
            StateError: If the file is missing or damaged; that never means "no rows".
        """
        place = chunk.place
        key = RowsKey(self.root, place.path, place.offset, chunk.ordinals, str(time_type))
        rows = _open_chunks.get(key)
        if rows is None:
            try:
                rows = self._read_rows(chunk, time_type, _open_chunks.is_checked(key))
            except StateError:
                if not self._discard_copies(chunk.files):
                    raise
                rows = self._read_rows(chunk, time_type, is_checked=False)
            _open_chunks.put(key, rows, self.open_bytes)
        return rows

    def _discard_copies(self, files: Iterable[str]) -> bool:
        """Remove this host's copies of remote files, which alone may be damaged; return whether there were any."""
        paths = [] if self.local is not None else [path for file in files if (path := self._copy_path(file)).exists()]
        for path in paths:
            path.unlink(missing_ok=True)
        return bool(paths)

    def _read_rows(self, chunk: Chunk, time_type: pa.DataType, is_checked: bool) -> Rows:
        """Return the rows of a chunk, memory-mapped, with their ordinals if they were stored apart.

        Raises:
            StateError: If the file is damaged.
        """
        place = chunk.place
        source = self._map(place.path)
        if source.size < place.offset + place.length:
            raise self._damage(place.path, "is cut short")
        batch, mapped_bytes = read_batch(source, place, is_checked), _in_memory(source)
        self.validate(batch)
        if chunk.ordinals is None:
            return Rows(batch, time_type, None, mapped_bytes)
        numbers = self.map_digested(chunk.ordinals)
        arrived = pa.ipc.open_stream(numbers).read_next_batch()
        self.validate(arrived)
        return Rows(batch, time_type, arrived.column(0).to_numpy(), mapped_bytes + _in_memory(numbers))

    def validate(self, batch: pa.RecordBatch) -> None:
        """Raise an ArrowInvalid if columns reach beyond their bytes, which Arrow itself doesn't check."""
        if self.confined:
            batch.validate(full=True)


class FileCache(Generic[Value]):
    """What a process has read from files of any store, up to a share of what it may keep open.

    Args:
        share: One part in so many.
    """

    def __init__(self, share: int) -> None:
        self._values: Cache[tuple[str, str], Value] = Cache()
        self._share = share

    def load(self, store: Store, path: str, read: Callable[[], Value], size_of: Callable[[Value], int]) -> Value:
        """Return what a file says; `read` is called if it hasn't been read, `size_of` for the bytes that this takes."""
        most = most_open(store.open_bytes or limits().open_bytes, self._values.size) // self._share
        return self._values.load((store.root, path), read, size_of, most)

    def forget_missing(self) -> None:
        """Drop what was read from files that have been removed."""
        self._values.forget(lambda key: Store(key[0]).is_gone(key[1]))


def _map_file(path: Path) -> pa.Buffer:
    """Memory-map a file; if address space runs out, close open chunks and try again."""
    try:
        with pa.memory_map(str(path)) as source:
            return source.read_buffer()
    except OSError as error:
        if error.errno != errno.ENOMEM or not _open_chunks.close():
            raise
    with pa.memory_map(str(path)) as source:
        return source.read_buffer()


def _in_memory(file: pa.Buffer) -> int:
    """Return the bytes a mapped file takes: whole pages, and the objects for it."""
    return (-(-int(file.size) // PAGE) + 1) * PAGE


_FULL = (errno.ENOSPC, errno.EDQUOT)


def _key_of(chunk: Chunk) -> tuple[str, int, str | None]:
    return chunk.place.path, chunk.place.offset, chunk.ordinals


_open_chunks = OpenChunks()
_run_chunks: dict[tuple[str, str], frozenset[tuple[str, int, str | None]]] = {}
"""The chunks that a query run last named, by the store's root and the run."""
