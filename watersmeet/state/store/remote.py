"""Stores elsewhere: how a URI is opened, and how a file is made there at once or not at all.

Arrow reads and writes, but overwrites whatever has the name already. So a new name is taken by whoever can: object
stores by a conditional put, HDFS by a rename that does not replace.
"""

import socket
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow.fs as pafs

from watersmeet.errors import DefinitionError

ANSWERS = 10.0
"""Seconds in which a host must answer."""
Create = Callable[[str, bytes], bool]
"""Makes a file of a path and its bytes; returns False, changing nothing, if there is one."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A folder that is not on this host's file system.

    Attributes:
        system: What reads, writes, lists and removes.
        base: The folder's path there.
        create: How a file is made whose name must be new; paths are relative to the folder.
    """

    system: pafs.FileSystem
    base: str
    create: Create

    def at(self, path: str) -> str:
        """Return the path that a file of the folder has in the whole system."""
        return f"{self.base.rstrip('/')}/{path}"


@lru_cache(maxsize=16)
def connect(root: str) -> Remote:
    """Open a folder by its URI; a process does so once.

    Raises:
        DefinitionError: If it can't be opened, or no file could be made there at once or not at all.
    """
    try:
        return _opener(root)(root)
    except DefinitionError:
        raise
    except ValueError as error:  # by Arrow, or for a URI that is none
        raise DefinitionError(f"{root} can't be opened: {' '.join(str(error).split()).rstrip('.')}.") from None


def _opener(root: str) -> Callable[[str], Remote]:
    scheme = urlsplit(root).scheme
    open_as = _OPENERS.get(scheme)
    if open_as is None:
        raise DefinitionError(
            f"{root}: state can't be kept on '{scheme}:', where two runs could create the same file; "
            f"use one of {', '.join(sorted(_OPENERS))}."
        )
    return open_as


def check_creates(remote: Remote, shown: str) -> None:
    """Check that a name is taken once, and that what took it and Arrow mean the same place by a path.

    Raises:
        DefinitionError: If not: two runs would overwrite each other's state.
    """
    path, data = f"try-{uuid.uuid4().hex}", b"once"
    try:
        first, second = remote.create(path, data), remote.create(path, b"twice")
        with remote.system.open_input_file(remote.at(path)) as found:
            kept = bytes(found.read())
    finally:
        _remove(remote, path)
    if (first, second, kept) != (True, False, data):
        raise DefinitionError(
            f"The store at {shown} lets a name be taken twice (it ignores conditional puts), so two runs could "
            "overwrite each other's state; use a store that honours If-None-Match, or another file system."
        )


def _remove(remote: Remote, path: str) -> None:
    with suppress(FileNotFoundError):
        remote.system.delete_file(remote.at(path))


# -- object stores


def objects(opened: Callable[[], Any]) -> Create:
    """Return how a file is made in an object store: a put on condition that there is none.

    Args:
        opened: Returns the store; asked only when a file is to be made, for who only reads needs none.
    """

    def create(path: str, data: bytes) -> bool:
        store = opened()
        from obstore import put
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            put(store, path, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except BaseError as error:
            raise OSError(" ".join(str(error).split())) from None
        return True

    return create


def _s3(root: str, settings: Mapping[str, str]) -> Any:
    from obstore.store import S3Store

    bucket, prefix = _bucket(root)
    host, scheme = settings.get("endpoint_override"), settings.get("scheme", "https")
    given: dict[str, Any] = {"region": settings.get("region"), "endpoint": host and f"{scheme}://{host}"}
    options = {key: value for key, value in given.items() if value}
    return S3Store(bucket, prefix=prefix, client_options={"allow_http": scheme == "http"}, **options)


def _gcs(root: str, settings: Mapping[str, str]) -> Any:
    from obstore.store import GCSStore

    bucket, prefix = _bucket(root)
    return GCSStore(bucket, prefix=prefix)


def _azure(root: str, settings: Mapping[str, str]) -> Any:
    from obstore.store import AzureStore

    _, prefix = _bucket(root)
    parts = urlsplit(root)
    return AzureStore(parts.username, prefix=prefix, account_name=(parts.hostname or "").partition(".")[0])


def _bucket(root: str) -> tuple[str, str | None]:
    """Return the bucket and the path in it, spelled as Arrow spells them."""
    bucket, _, prefix = pafs.FileSystem.from_uri(root)[1].partition("/")
    return bucket, prefix.rstrip("/") or None


def _in_cloud(open_store: Callable[[str, Mapping[str, str]], Any], root: str) -> Remote:
    @lru_cache(maxsize=1)
    def opened() -> Any:
        try:
            return open_store(root, dict(parse_qsl(urlsplit(root).query)))
        except ModuleNotFoundError:
            raise _wants(root, "obstore", "cloud") from None

    system, base = pafs.FileSystem.from_uri(root)
    return Remote(system, str(base), objects(opened))


# -- HDFS


def _hdfs(root: str) -> Remote:
    try:
        from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem
    except ModuleNotFoundError:
        raise _wants(root, "hdfs-native", "hdfs") from None
    parts = urlsplit(root)
    if parts.hostname and parts.port:  # its client waits for ever for one that isn't there
        socket.create_connection((parts.hostname, parts.port), timeout=ANSWERS).close()
    kind = ViewfsFileSystem if parts.scheme == "viewfs" else HdfsFileSystem
    # [!] It takes paths for URLs, and cuts them at # and ?: another file would be meant, and written over.
    plain = type(f"Plain{kind.__name__}", (kind,), {"_strip_protocol": staticmethod(lambda path: path)})
    files, base = plain(host=parts.hostname, port=parts.port), unquote(parts.path) or "/"
    system = pafs.PyFileSystem(pafs.FSSpecHandler(files))
    return Remote(system, base, partial(_renamed, files, base))


def _renamed(files: Any, base: str, path: str, data: bytes) -> bool:
    """Make a file of HDFS: under a name of its own, which then becomes the one that it is to have."""
    target = f"{base.rstrip('/')}/{path}"
    draft = f"{target}.{uuid.uuid4().hex}.draft"
    files.pipe_file(draft, data)
    try:
        files.mv(draft, target, overwrite=False)
    except FileExistsError:
        files.rm_file(draft)
        return False
    return True


def _wants(root: str, package: str, extra: str) -> DefinitionError:
    return DefinitionError(f"{root} needs the package {package}: pip install 'watersmeet[{extra}]', on every executor.")


_OPENERS: dict[str, Callable[[str], Remote]] = {
    "s3": partial(_in_cloud, _s3),
    "gs": partial(_in_cloud, _gcs),
    "abfs": partial(_in_cloud, _azure),
    "abfss": partial(_in_cloud, _azure),
    "hdfs": _hdfs,
    "viewfs": _hdfs,
}
