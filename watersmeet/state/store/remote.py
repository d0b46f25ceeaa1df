"""Remote stores: opening a URI, and creating files atomically and only if they don't exist.

Arrow reads and writes, but overwrites files that exist. So files are created by other clients: in object stores by a
conditional put, in HDFS by a rename that does not replace.
"""

import os
import socket
import stat
import tempfile
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow.fs as pafs

from watersmeet.errors import DefinitionError, StateError
from watersmeet.limits import limits
from watersmeet.state.store.budget import cores
from watersmeet.state.store.file_format import DRAFT

ANSWERS = 10.0
"""Seconds in which a host must answer."""
Create = Callable[[str, bytes], bool]
"""Creates a file with a path and bytes; returns False, changing nothing, if it exists."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A folder that is not on this host's file system.

    Attributes:
        system: The file system that reads, writes, lists and removes.
        base: The folder's path there.
        create: Creates a file whose name must be new; paths are relative to the folder.
    """

    system: pafs.FileSystem
    base: str
    create: Create

    def at(self, path: str) -> str:
        """Return the full path of a file of the folder."""
        return f"{self.base.rstrip('/')}/{path}"


@lru_cache(maxsize=16)
def connect(root: str) -> Remote:
    """Open a folder by its URI, once per process.

    Raises:
        DefinitionError: If it can't be opened, or files can't be created atomically there.
        OSError: If no host answers.
    """
    try:
        return _opener(root)(root)
    except DefinitionError:
        raise
    except ValueError as error:  # by Arrow, or for a URI that is none
        raise DefinitionError(f"{root} can't be opened: {' '.join(str(error).split()).rstrip('.')}.") from None


def _opener(root: str) -> Callable[[str], Remote]:
    """Return what opens stores of a URL's scheme.

    Raises:
        DefinitionError: If state can't be kept there.
    """
    scheme = urlsplit(root).scheme
    open_as = _OPENERS.get(scheme)
    if open_as is None:
        raise DefinitionError(
            f"{root}: state can't be kept on '{scheme}:', where two runs could create the same file; "
            f"use one of {', '.join(sorted(_OPENERS))}."
        )
    return open_as


def check_creates(remote: Remote, name: str) -> None:
    """Check that a file can be created only once, and that Arrow then reads it under the same path.

    Creates a file to try it, and removes it.

    Raises:
        DefinitionError: If not: two runs would overwrite each other's state.
    """
    path, content = f"try-{uuid.uuid4().hex}{DRAFT}", b"once"
    try:
        first, second = remote.create(path, content), remote.create(path, b"twice")
        with remote.system.open_input_file(remote.at(path)) as file:
            stored = bytes(file.read())
    finally:
        _remove(remote, path)
    if (first, second, stored) != (True, False, content):
        raise DefinitionError(
            f"The store at {name} lets a name be taken twice (it ignores conditional puts), so two runs could "
            "overwrite each other's state; use a store that honours If-None-Match, or another file system."
        )


def _remove(remote: Remote, path: str) -> None:
    with suppress(FileNotFoundError):
        remote.system.delete_file(remote.at(path))


# -- object stores


def create_by_put(open_store: Callable[[], Any]) -> Create:
    """Return what creates a file in an object store, by a conditional put.

    Args:
        open_store: Returns the store; called only when a file is created, as readers need none.
    """

    def create(path: str, content: bytes) -> bool:
        """Create a file, and return whether it did: False if one of that name exists.

        Raises:
            OSError: If the store fails otherwise.
        """
        store = open_store()
        from obstore import put
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            put(store, path, content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except BaseError as error:
            raise OSError(" ".join(str(error).split())) from None
        return True

    return create


def _s3(root: str, settings: Mapping[str, str]) -> Any:
    """Return obstore's S3 store of a URL, by its endpoint, scheme and region."""
    from obstore.store import S3Store

    bucket, prefix = _bucket(root)
    host, scheme = settings.get("endpoint_override"), settings.get("scheme", "https")
    settings_of: dict[str, Any] = {"region": settings.get("region"), "endpoint": host and f"{scheme}://{host}"}
    options = {key: value for key, value in settings_of.items() if value}
    return S3Store(bucket, prefix=prefix, client_options={"allow_http": scheme == "http"}, **options)


def _gcs(root: str, settings: Mapping[str, str]) -> Any:
    from obstore.store import GCSStore

    bucket, prefix = _bucket(root)
    return GCSStore(bucket, prefix=prefix)


def _azure(root: str, settings: Mapping[str, str]) -> Any:
    """Return obstore's Azure store of a URL: the container is its user, the account its host."""
    from obstore.store import AzureStore

    _, prefix = _bucket(root)
    parts = urlsplit(root)
    return AzureStore(parts.username, prefix=prefix, account_name=(parts.hostname or "").partition(".")[0])


def _bucket(root: str) -> tuple[str, str | None]:
    """Return the bucket and the path in it, as Arrow spells them."""
    bucket, _, prefix = pafs.FileSystem.from_uri(root)[1].partition("/")
    return bucket, prefix.rstrip("/") or None


def _open_in_cloud(open_store: Callable[[str, Mapping[str, str]], Any], root: str) -> Remote:
    """Return a store in a cloud; the package by which it creates files is imported when it creates the first."""

    @lru_cache(maxsize=1)
    def open_once() -> Any:
        try:
            return open_store(root, dict(parse_qsl(urlsplit(root).query)))
        except ModuleNotFoundError:
            raise _missing_package_error(root, "obstore", "cloud") from None

    system, base = pafs.FileSystem.from_uri(root)
    return Remote(system, str(base), create_by_put(open_once))


# -- HDFS


def _open_hdfs(root: str) -> Remote:
    """Return a store on HDFS, through its client in Rust.

    Raises:
        DefinitionError: If the client isn't installed.
        OSError: If no host answers.
    """
    try:
        from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem
    except ModuleNotFoundError:
        raise _missing_package_error(root, "hdfs-native", "hdfs") from None
    parts = urlsplit(root)
    if parts.hostname and parts.port:  # its client waits for ever for a host that isn't there
        socket.create_connection((parts.hostname, parts.port), timeout=ANSWERS).close()
    kind = ViewfsFileSystem if parts.scheme == "viewfs" else HdfsFileSystem
    # [!] It takes paths for URLs and cuts them at # and ?: another file would be overwritten.
    plain = type(f"Plain{kind.__name__}", (kind,), {"_strip_protocol": staticmethod(lambda path: path)})
    files, base = plain(host=parts.hostname, port=parts.port), unquote(parts.path) or "/"
    system = pafs.PyFileSystem(pafs.FSSpecHandler(files))
    return Remote(system, base, partial(_create_by_rename, files, base))


def _create_by_rename(files: Any, base: str, path: str, content: bytes) -> bool:
    """Create a file of HDFS: write it under a unique name, then rename it.

    Return whether that succeeded: False if a file of that name exists; the draft is then removed.
    """
    target = f"{base.rstrip('/')}/{path}"
    draft = f"{target}.{uuid.uuid4().hex}{DRAFT}"
    files.pipe_file(draft, content)
    try:
        files.mv(draft, target, overwrite=False)
    except FileExistsError:
        files.rm_file(draft)
        return False
    return True


def _missing_package_error(root: str, package: str, extra: str) -> DefinitionError:
    return DefinitionError(f"{root} needs the package {package}: pip install 'watersmeet[{extra}]', on every executor.")


_OPENERS: dict[str, Callable[[str], Remote]] = {
    "s3": partial(_open_in_cloud, _s3),
    "gs": partial(_open_in_cloud, _gcs),
    "abfs": partial(_open_in_cloud, _azure),
    "abfss": partial(_open_in_cloud, _azure),
    "hdfs": _open_hdfs,
    "viewfs": _open_hdfs,
}


_fetched_bytes: int | None = None
"""Bytes that this process has fetched since it last measured all copies; None before the first time."""


def folder() -> Path:
    """Return the folder of all copies."""
    return Path(tempfile.gettempdir(), f"watersmeet-{os.getuid()}")


def save(path: Path, content: bytes) -> None:
    """Write a copy of a remote file atomically; now and then, old copies are removed to make room.

    Raises:
        StateError: If another user could write to the folder.
    """
    global _fetched_bytes  # measuring all copies for each new one would cost more than fetching it
    _create_private(folder())
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    draft.write_bytes(content)
    draft.replace(path)
    # [!] Other processes fetch at the same time, and earlier ones may have ended before it was their turn to measure.
    due = _fetched_bytes is None or _fetched_bytes + len(content) > limits().copied_bytes // (8 * min(8, cores()))
    _fetched_bytes = 0 if due else (_fetched_bytes or 0) + len(content)
    if due:
        _trim(path)


def _trim(newest: Path) -> None:
    """If copies take too much, remove the oldest until the rest take three quarters of their limit."""
    copies = [(info.st_mtime_ns, info.st_size, path) for path in folder().rglob("*") if (info := _info(path))]
    size = sum(size for _, size, _ in copies)
    if size <= limits().copied_bytes:
        return
    for _, bytes, path in sorted(copies):
        if path != newest and 4 * size > 3 * limits().copied_bytes:
            path.unlink(missing_ok=True)  # a process that has it mapped keeps it
            size -= bytes


def _info(path: Path) -> os.stat_result | None:
    with suppress(FileNotFoundError):
        info = path.lstat()
        return info if stat.S_ISREG(info.st_mode) else None
    return None


def _create_private(folder: Path) -> None:
    """Create the folder of copies, to which no other user may write: its files are trusted as state.

    Raises:
        StateError: If another user could.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise StateError(
            f"The folder {folder}, for copies of remote state, is not private to this user; remove it, make this "
            "process's user its owner with the mode 0700, or set TMPDIR to a folder of your own."
        )
    folder.chmod(0o700)
