"""The store: a folder of immutable files, on any file system that pyarrow opens."""

import os
import tempfile
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from watersmeet.errors import StateError
from watersmeet.state.chunk import Chunk, Rows, read_batch


@dataclass(frozen=True, slots=True)
class Store:
    """Files under one root; small enough to travel to every task.

    Names are never reused, so whatever is cached by path stays true.

    Attributes:
        root: A local path, or a URI that `pyarrow.fs` opens.
    """

    root: str

    @property
    def local(self) -> str | None:
        """The root as a path of this host's file system, or None if it is elsewhere."""
        if self.root.startswith("file:"):
            return "/" + self.root.removeprefix("file:").lstrip("/")
        return None if "://" in self.root else self.root

    def remote(self, path: str) -> tuple[pafs.FileSystem, str]:
        """Return the file system of a store that isn't local, and a file's path there."""
        system, base = _connect(self.root)
        return system, f"{base.rstrip('/')}/{path}"

    def write(self, path: str, data: Any) -> None:
        """Write a file whose name is new; readers learn its name only afterwards."""
        if self.local is None:
            system, full = self.remote(path)
            system.create_dir(os.path.dirname(full), recursive=True)  # object stores have none, others want them
            with system.open_output_stream(full) as out:
                out.write(data)
            return
        target = Path(self.local, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "wb") as out:
            out.write(data)

    def publish(self, path: str, data: bytes) -> bool:
        """Write a file at once or not at all; return False, changing nothing, if it exists."""
        if self.local is None:
            system, full = self.remote(path)
            if system.get_file_info(full).type != pafs.FileType.NotFound:
                return False
            self.write(path, data)
            return True
        draft = f"{path}.{uuid.uuid4().hex}.draft"
        self.write(draft, data)
        try:
            os.link(Path(self.local, draft), Path(self.local, path))
        except FileExistsError:
            return False
        finally:
            os.unlink(Path(self.local, draft))
        return True

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, or None if there is no such file."""
        try:
            if self.local is None:
                system, full = self.remote(path)
                with system.open_input_file(full) as source:
                    return bytes(source.read())
            return Path(self.local, path).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """List the files below a folder, for the sweep only: state is never found by listing."""
        if self.local is None:
            system, full = self.remote(folder)
            infos = system.get_file_info(pafs.FileSelector(full, recursive=True, allow_not_found=True))
            return [f"{folder}{info.path[len(full) :]}" for info in infos if info.type == pafs.FileType.File]
        base = Path(self.local, folder)
        return [str(path.relative_to(self.local)) for path in base.rglob("*") if path.is_file()]

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; those already gone are fine."""
        for path in paths:
            try:
                if self.local is None:
                    self._cached(path).unlink(missing_ok=True)
                    system, full = self.remote(path)
                    system.delete_file(full)
                else:
                    os.unlink(Path(self.local, path))
            except FileNotFoundError:
                pass

    def _map(self, path: str) -> pa.Buffer:
        """Memory-map a file, fetching it to this host's disk first if it is remote."""
        try:
            with pa.memory_map(str(self._on_this_host(path))) as source:
                return source.read_buffer()
        except (FileNotFoundError, pa.ArrowInvalid):
            raise self._damaged(path, "is missing or empty") from None

    def _damaged(self, path: str, how: str) -> StateError:
        return StateError(
            f"The state file {path} under {self.root} {how}: a manifest names it, "
            "so results would be lost; restore it or start a new checkpoint."
        )

    def _on_this_host(self, path: str) -> Path:
        if self.local is not None:
            return Path(self.local, path)
        cached = self._cached(path)
        if not cached.exists():
            data = self.read(path)
            if data is None:
                raise FileNotFoundError(path)
            cached.parent.mkdir(parents=True, exist_ok=True)
            draft = cached.with_name(f"{cached.name}.{uuid.uuid4().hex}")
            draft.write_bytes(data)
            draft.replace(cached)
        return cached

    def _cached(self, path: str) -> Path:
        """Return where this host keeps its copy of a remote file."""
        return Path(tempfile.gettempdir(), f"watersmeet-{os.getuid()}", self.root.replace("/", "_"), path)

    def open(self, chunk: Chunk, time_type: pa.DataType) -> Rows:
        """Return the rows of a chunk.

        Raises:
            StateError: If the file is missing or damaged; never "no rows".
        """
        place = chunk.place
        key = (self.root, place.path, place.offset, chunk.ordinals, str(time_type))
        rows = _opened.get(key)
        if rows is None:
            source = self._map(place.path)
            if source.size < place.offset + place.length:
                raise self._damaged(place.path, "is cut short")
            batch = read_batch(source, place)
            rows = Rows(batch, time_type, self._ordinals(chunk))
            _opened.put(key, rows)
        return rows

    def _ordinals(self, chunk: Chunk) -> Any:
        if chunk.ordinals is None:
            return None
        data = self._map(chunk.ordinals)
        if not chunk.ordinals.endswith(f"-{zlib.crc32(data):08x}.ordinals"):
            raise self._damaged(chunk.ordinals, "fails its checksum")
        return pa.ipc.open_stream(data).read_next_batch().column(0).to_numpy()


def _connect(root: str) -> tuple[pafs.FileSystem, str]:
    system, base = pafs.FileSystem.from_uri(root)
    return system, str(base)


class _Opened:
    """The chunks this process has open, the least recently used dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: OrderedDict[Any, Rows] = OrderedDict()

    def get(self, key: Any) -> Rows | None:
        if key in self._rows:
            self._rows.move_to_end(key)
        return self._rows.get(key)

    def put(self, key: Any, rows: Rows) -> None:
        self._rows[key] = rows
        while len(self._rows) > self._limit:
            self._rows.popitem(last=False)


_opened = _Opened(4096)
