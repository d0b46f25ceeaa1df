"""Paths of checkpoints, read as Hadoop reads them, so that they mean the same to every command as to Spark."""

import os
from urllib.parse import quote

from watersmeet.errors import DefinitionError
from watersmeet.state.store.store import Store

FOLDER = "watersmeet"
"""The store's folder in a checkpoint."""


def split(path: str) -> tuple[str, str]:
    """Return the scheme of a path and the rest: a colon before the first slash ends it.

    >>> split("s3a://bucket/x"), split("/a:b")
    (('s3a', '//bucket/x'), ('', '/a:b'))
    """
    head, colon, rest = path.partition(":")
    return (head, rest) if colon and "/" not in head else ("", path)


def parts(rest: str) -> tuple[str, str]:
    """Return the authority and the path in what follows a scheme.

    >>> parts("//bucket/x"), parts("//bucket"), parts("/x")
    (('bucket', '/x'), ('bucket', '/'), ('', '/x'))
    """
    if not rest.startswith("//"):
        return "", rest
    authority, slash, path = rest[2:].partition("/")
    return authority, f"{slash}{path}" or "/"


def normal(path: str) -> str:
    """Return a path without empty and `..` steps.

    >>> normal("//a//b/../c/")
    '/a/c'
    """
    return "/" + os.path.normpath(path).lstrip("/")


def store_of(checkpoint: str) -> Store:
    """Return the store of a checkpoint without Spark's help; it is confined, since anybody may have filled it.

    Args:
        checkpoint: The query's checkpointLocation. Settings of a remote store, which Spark would know, may follow as
            Arrow spells them: `s3a://bucket/x?region=eu-west-1`.

    Raises:
        DefinitionError: If it can't be one.
    """
    scheme, rest = split(checkpoint)
    if not checkpoint:
        raise DefinitionError("'' is not a path; give the checkpointLocation of a join.")
    if not scheme:
        return Store(os.path.join(normal(os.path.abspath(checkpoint)), FOLDER), confined=True)
    if not rest.startswith("/"):
        raise DefinitionError(
            f"{checkpoint}: what follows {scheme}: must begin with a slash; "
            f"write ./{checkpoint} for a folder of that name."
        )
    root = _folder_of(checkpoint, scheme, rest) if scheme in _LOCAL else _url_of(checkpoint, scheme, rest)
    return Store(root, confined=True)


_LOCAL = {"file": "/", "dbfs": "/dbfs"}
"""The schemes of this host's file system, and where their paths begin."""


def _folder_of(checkpoint: str, scheme: str, rest: str) -> str:
    """Return the store's folder for a checkpoint on a file system.

    Raises:
        DefinitionError: If the path names a host.
    """
    authority, path = parts(rest)
    if authority:
        raise DefinitionError(
            f"{checkpoint}: a {scheme}: path has no host; write {scheme}:///{authority}{path} for that folder."
        )
    return os.path.join(_LOCAL[scheme], normal(path).lstrip("/"), FOLDER)


def _url_of(checkpoint: str, scheme: str, rest: str) -> str:
    """Return the store's URL for a checkpoint in a cloud or on a cluster, its settings kept.

    Raises:
        DefinitionError: If it names no bucket or host.
    """
    plain, mark, settings = rest.partition("?")
    authority, path = parts(plain)
    if not authority:
        raise DefinitionError(f"{checkpoint} names no bucket or host; write {scheme}://NAME/...")
    place = quote(os.path.join(normal(path), FOLDER))
    return f"{'s3' if scheme == 's3a' else scheme}://{authority}{place}{mark}{settings}"
