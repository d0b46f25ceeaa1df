"""The store: a folder of immutable files, on any file system that pyarrow opens."""

import errno
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from watersmeet.errors import AFRESH, StateError
from watersmeet.state.chunks.chunk import Chunk
from watersmeet.state.chunks.rows import Rows
from watersmeet.state.store import copies, remote
from watersmeet.state.store.confined import inside, small
from watersmeet.state.store.durable import sync, sync_bytes, sync_names
from watersmeet.state.store.ipc import read_batch
from watersmeet.state.store.open_chunks import Key, Opened
from watersmeet.state.store.sealed import digest

TRIES = 3
"""How often a remote file is fetched whose copy on this host vanishes."""
PAGE = 4096
"""Files are mapped in pages of so many bytes; about as many more are taken by the objects that stand for one."""
MOST_RUNS = 100
"""Runs of queries of which a process remembers the chunks that they named."""


@dataclass(frozen=True, slots=True)
class Store:
    """Files under one root; small enough to travel to every task.

    Names are never reused, so whatever is cached by path stays true.

    Attributes:
        root: A local path, or a URI that `pyarrow.fs` opens.
        durable: Whether what is published on this host's file system survives a loss of power.
        open_bytes: What the chunks that a process keeps open may take; 0 for what the limits say.
        confined: Whether somebody else may have filled it: no link that leads out of it is followed, and what its
            files hold is validated before it is used. It is only read.
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
        found = remote.connect(self.root)
        return found.system, found.at(path)

    def check(self) -> None:
        """Raise a DefinitionError if two runs could publish the same file."""
        if self.local is None:
            remote.check_creates(remote.connect(self.root), self.root)

    def write(self, path: str, data: Any) -> None:
        """Write a file whose name is new; readers learn its name only afterwards."""
        if self.local is None:
            system, full = self.remote(path)
            system.create_dir(os.path.dirname(full), recursive=True)  # object stores have none, others want them
            with system.open_output_stream(full) as out:
                out.write(data)
            return
        target = Path(self.local, path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as out:
                out.write(data)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            target.unlink(missing_ok=True)
            raise StateError(
                f"{error.strerror} at {self.root}; nothing is lost: free some space and start again."
            ) from None

    def publish(self, path: str, data: bytes) -> bool:
        """Write a file at once or not at all; return False, changing nothing, if it exists."""
        if self.local is None:
            # [!] A client that lost the answer asks again, and is told that the file exists: its own.
            return remote.connect(self.root).create(path, data) or self.read(path) == data
        target, draft = Path(self.local, path), self._draft(path, data)
        try:
            if self.durable:
                sync_bytes([str(draft)])
            published = _linked(draft, target)
        finally:
            draft.unlink(missing_ok=True)
        if self.durable:
            sync_names([str(target)])
        return published

    def sync(self, paths: Iterable[str]) -> None:
        """Write files through to the disk, if the store is durable; stores elsewhere see to it themselves."""
        if self.durable and self.local is not None:
            sync(os.path.join(self.local, path) for path in paths)

    def overwrite(self, path: str, data: bytes) -> None:
        """Write a file that may exist; for the one writer it has. Readers see the old bytes or the new."""
        if self.local is None:
            self.write(path, data)
            return
        os.replace(self._draft(path, data), Path(self.local, path))

    def _draft(self, path: str, data: bytes) -> Path:
        """Write a file of this host's under a name of its own, beside the one that it is to have."""
        draft = f"{path}.{uuid.uuid4().hex}.draft"
        self.write(draft, data)
        return Path(self.local or "", draft)

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, or None if there is no such file."""
        try:
            if self.local is None:
                system, full = self.remote(path)
                with system.open_input_file(full) as source:
                    return bytes(source.read())
            return (small(self.local, path) if self.confined else Path(self.local, path)).read_bytes()
        except FileNotFoundError:
            return None

    def modified(self, path: str) -> float | None:
        """Return when a file was written, in seconds since the epoch by its file system's clock; None without one."""
        if self.local is None:
            system, full = self.remote(path)
            written = system.get_file_info(full).mtime_ns
            return None if written is None else float(written / 1e9)
        try:
            return os.stat(Path(self.local, path)).st_mtime
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """List the files below a folder, for the sweep only: state is never found by listing."""
        if self.local is None:
            system, full = self.remote(folder)
            infos = system.get_file_info(pafs.FileSelector(full, recursive=True, allow_not_found=True))
            return [f"{folder}{info.path[len(full) :]}" for info in infos if info.type == pafs.FileType.File]
        below = os.path.join(self.local, folder)
        if self.confined and os.path.lexists(below):
            inside(self.local, folder)
        return [os.path.relpath(path, self.local) for path in files_below(below)]

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, which this process then no longer keeps open; those already gone are fine."""
        gone = frozenset(paths)
        _opened.forget(lambda key: key.root == self.root and not gone.isdisjoint((key.path, key.ordinals)))
        for path in gone:
            try:
                if self.local is None:
                    self._cached(path).unlink(missing_ok=True)
                    system, full = self.remote(path)
                    system.delete_file(full)
                else:
                    os.unlink(Path(self.local, path))
            except FileNotFoundError:
                pass

    def keep(self, run: str, chunks: Iterable[Chunk]) -> None:
        """Close the chunks that a run of a query has named and names no longer: their files are gone, or will be.

        Args:
            run: The run; joins in one store have different ones.
            chunks: All that it names now.
        """
        if (self.root, run) not in _named:  # another may have ended, and its files have been removed by anybody
            _opened.forget(lambda key: not Store(key.root)._kept_at(key.path).exists())
        now = {_known_by(chunk) for chunk in chunks}
        before = _named.pop((self.root, run), frozenset())
        _named[self.root, run] = frozenset(now)
        while len(_named) > MOST_RUNS:
            del _named[next(iter(_named))]
        gone = before - now
        if gone:
            _opened.forget(lambda key: key.root == self.root and key[1:4] in gone)
        if self.local is None:
            files = {file for path, _, ordinals in gone for file in (path, ordinals) if file is not None}
            for file in files - {file for path, _, ordinals in now for file in (path, ordinals)}:
                self._cached(file).unlink(missing_ok=True)

    def _map(self, path: str) -> pa.Buffer:
        """Memory-map a file, fetching it to this host's disk first if it is remote."""
        for _ in range(TRIES):
            try:
                return _mapped(self._on_this_host(path))
            except (FileNotFoundError, pa.ArrowInvalid):  # another process may have removed this host's copy
                if self.local is not None:
                    break
        raise self._damaged(path, "is missing or empty")

    def map_digested(self, path: str) -> pa.Buffer:
        """Memory-map a file whose name ends with its digest, before the suffix.

        Raises:
            StateError: If it is missing or damaged.
        """
        data = self._map(path)
        if not path.rpartition(".")[0].endswith(f"-{digest(data)}"):
            raise self._damaged(path, "fails its checksum")
        return data

    def _damaged(self, path: str, how: str) -> StateError:
        return StateError(
            f"The state file {path} under {self.root} {how}: a manifest names it, "
            f"so results would be lost; restore it or {AFRESH}."
        )

    def is_gone(self, path: str) -> bool:
        """Tell whether a file has been removed, if that is known without asking another host."""
        return self.local is not None and not self._kept_at(path).exists()

    def _kept_at(self, path: str) -> Path:
        """Return where this host has a file, or its copy if it is remote."""
        return Path(self.local, path) if self.local is not None else self._cached(path)

    def _on_this_host(self, path: str) -> Path:
        cached = inside(self.local, path) if self.confined and self.local is not None else self._kept_at(path)
        if self.local is None and not cached.exists():
            data = self.read(path)
            if data is None:
                raise FileNotFoundError(path)
            copies.keep(cached, data)
        return cached

    def _cached(self, path: str) -> Path:
        """Return where this host keeps its copy of a remote file."""
        return Path(copies.folder(), self.root.replace("/", "_"), path)

    def open(self, chunk: Chunk, time_type: pa.DataType) -> Rows:
        """Return the rows of a chunk.

        Raises:
            StateError: If the file is missing or damaged; never "no rows".
        """
        place = chunk.place
        key = Key(self.root, place.path, place.offset, chunk.ordinals, str(time_type))
        rows = _opened.get(key)
        if rows is None:
            try:
                rows = self._read_rows(chunk, time_type, _opened.is_checked(key))
            except StateError:
                if not self._forgotten(chunk.files):
                    raise
                rows = self._read_rows(chunk, time_type, checked=False)
            _opened.put(key, rows, self.open_bytes)
        return rows

    def _forgotten(self, files: Iterable[str]) -> bool:
        """Remove this host's copies of remote files, which may be damaged where the files aren't; False without any."""
        copied = [] if self.local is not None else [path for file in files if (path := self._cached(file)).exists()]
        for path in copied:
            path.unlink(missing_ok=True)
        return bool(copied)

    def _read_rows(self, chunk: Chunk, time_type: pa.DataType, checked: bool) -> Rows:
        place = chunk.place
        source = self._map(place.path)
        if source.size < place.offset + place.length:
            raise self._damaged(place.path, "is cut short")
        batch, mapped = read_batch(source, place, checked), _in_memory(source)
        self.validate(batch)
        if chunk.ordinals is None:
            return Rows(batch, time_type, None, mapped)
        numbers = self.map_digested(chunk.ordinals)
        arrived = pa.ipc.open_stream(numbers).read_next_batch()
        self.validate(arrived)
        return Rows(batch, time_type, arrived.column(0).to_numpy(), mapped + _in_memory(numbers))

    def validate(self, batch: pa.RecordBatch) -> None:
        """Raise an ArrowInvalid if columns reach beyond their bytes; Arrow itself believes what a file says."""
        if self.confined:
            batch.validate(full=True)


def files_below(folder: str) -> Iterator[str]:
    """Yield the files below a folder of this host's, none if there is no such folder.

    Raises:
        OSError: If one of its folders can't be read: that is not the same as empty.
    """
    for base, _, names in os.walk(folder, onerror=_unless_missing):
        yield from (os.path.join(base, name) for name in names)


def _mapped(path: Path) -> pa.Buffer:
    """Map a file into memory; if no address space is left, chunks that are open make room."""
    try:
        with pa.memory_map(str(path)) as source:
            return source.read_buffer()
    except OSError as error:
        if error.errno != errno.ENOMEM or not _opened.close():
            raise
    with pa.memory_map(str(path)) as source:
        return source.read_buffer()


def _in_memory(file: pa.Buffer) -> int:
    """Return what a mapped file takes: whole pages, and objects that stand for it."""
    return (-(-int(file.size) // PAGE) + 1) * PAGE


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _linked(draft: Path, path: Path) -> bool:
    """Give a file another name, unless there is a file of that name; return whether there was none."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # [!] Where there are no hard links, the name is taken first: cut here, an empty file is left, and not read.
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        try:
            os.replace(draft, path)
        except OSError:
            path.unlink()  # else whoever tries again takes it for another run's
            raise
    return True


_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EMLINK)


def _known_by(chunk: Chunk) -> tuple[str, int, str | None]:
    return chunk.place.path, chunk.place.offset, chunk.ordinals


_opened = Opened()
_named: dict[tuple[str, str], frozenset[tuple[str, int, str | None]]] = {}
"""The chunks that a run of a query last named, by the store's root and the run."""
