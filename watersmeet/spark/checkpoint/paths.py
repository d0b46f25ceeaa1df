"""What a path means, for checkpoints, outputs and side outputs alike.

Spark hands paths to Hadoop, and the engine's own files are opened by Arrow. Both must arrive at the same place, or the
path is rejected.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
from pyspark.sql import SparkSession

from watersmeet.errors import DefinitionError
from watersmeet.state.store.places import normal, parts, split
from watersmeet.state.store.store import Store


@dataclass(frozen=True, slots=True)
class Location:
    """A folder or file as Spark spells it, and as Arrow does.

    Attributes:
        spark: The path that Spark is given.
        arrow: A path on this host without links, so that one place has one name, or a URI that `pyarrow.fs` opens.
    """

    spark: str
    arrow: str

    @property
    def is_local(self) -> bool:
        """Whether it is on this host's file system."""
        return "://" not in self.arrow

    def inside(self, name: str) -> "Location":
        """Return a location below this one."""
        spark_path = f"{self.spark.rstrip('/')}/{name}"
        if self.is_local:
            return Location(spark_path, f"{self.arrow.rstrip('/')}/{name}")
        uri, mark, settings = self.arrow.partition("?")
        return Location(spark_path, f"{uri.rstrip('/')}/{quote(name)}{mark}{settings}")


def locate(spark: SparkSession, path: str, what: str) -> Location:
    """Return the location that a path means to Spark.

    Args:
        spark: The session.
        path: The path, as a user writes it.
        what: What it is for, such as "checkpointLocation".

    Raises:
        DefinitionError: If it is not a path, or Python can't reach the same location.
    """
    if not path or "\0" in path or not _is_text(path):
        raise DefinitionError(f"{what} {path!r} is not a path.")
    if path != path.strip():
        raise DefinitionError(f"{what} {path!r} has leading or trailing whitespace; remove it.")
    if path.split("/")[0].startswith("~"):
        home = os.path.expanduser(path)
        raise DefinitionError(f"{what} '{path}': Spark takes ~ for a folder of that name; write {home}, or ./{path}.")
    scheme, rest = split(path)
    if not scheme:
        return _locate_without_scheme(spark, path, what)
    authority, inside = parts(rest)
    if not inside.startswith("/"):
        raise DefinitionError(f"{what} '{path}': what follows {scheme}: must begin with a slash; or write ./{path}.")
    open_as = _SCHEMES.get(scheme)
    if open_as is None:
        schemes = ", ".join(sorted(_SCHEMES))
        raise DefinitionError(
            f"{what} '{path}': Python can't open '{scheme}:'; use one of {schemes}, or ./{path} for a folder."
        )
    try:
        return Location(path.rstrip("/") or path, open_as(_StorageUri(spark, scheme, authority, normal(inside))))
    except _Unreachable as problem:
        raise DefinitionError(f"{what} '{path}': {problem}.") from None


def text_of(path: object, what: str) -> str:
    """Return a path, or the value of another option, as text.

    Raises:
        DefinitionError: If a pathlib.Path was made from a URL, which loses a slash.
    """
    if isinstance(path, PurePath) and split(str(path))[0]:
        raise DefinitionError(f"{what} {path!r}: a Path can't hold a URL, it drops a slash; give it as text.")
    return str(path)


def _is_text(path: str) -> bool:
    try:
        return bool(path.encode())
    except UnicodeEncodeError:
        return False


def absolute(spark: SparkSession, path: str) -> str:
    """Return a path for use by Spark alone, whose working folder may differ from Python's."""
    scheme, _ = split(path)
    return path if scheme or not _is_file(_default_system(spark)) else _absolute_path(path)


def check_reachable(location: Location, what: str) -> Location:
    """Check that Python can reach a location, and return it.

    Raises:
        DefinitionError: If it can't.
    """
    if not location.is_local:
        try:
            system, base = Store(location.arrow).remote("")
            system.get_file_info(base.rstrip("/"))
        except (OSError, pa.ArrowException) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise DefinitionError(
                f"{what} '{location.spark}' can't be reached from Python: {reason}. Arrow connects directly, not "
                "through Spark: check that it has what it needs (access, a client library, a network)."
            ) from None
    return location


class _Unreachable(Exception):
    """Python can't reach a location; the message says why."""


@dataclass(frozen=True, slots=True)
class _StorageUri:
    spark: SparkSession
    scheme: str
    authority: str
    path: str

    def setting(self, *names: str) -> str | None:
        """Return the first of these settings of Hadoop that is set."""
        conf = _hadoop(self.spark)
        values = (conf.get(name) for name in names)
        return next((str(value) for value in values if value), None)


def _locate_without_scheme(spark: SparkSession, path: str, what: str) -> Location:
    """Return where a path without a scheme lies in Spark's default file system.

    Raises:
        DefinitionError: If that isn't this host's, and the path doesn't begin with a slash or Python can't reach it.
    """
    default = _default_system(spark)
    if _is_file(default):
        full = _absolute_path(path)
        return Location(full, os.path.realpath(full))
    if not path.startswith("/"):
        raise DefinitionError(
            f"{what} '{path}': Spark's file system is {default} (fs.defaultFS); give the full path, with its scheme."
        )
    return locate(spark, f"{default.rstrip('/')}{path}", what)


def _absolute_path(path: str) -> str:
    # Spark would resolve a relative path against the JVM's folder, and take two slashes for the start of a host.
    return "/" + os.path.abspath(path).lstrip("/")


def _hadoop(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()


def _default_system(spark: SparkSession) -> str:
    jvm: Any = spark._jvm
    return str(jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(_hadoop(spark)).toString())


def _is_file(uri: str) -> bool:
    return uri.startswith("file:")


def _file_uri(uri: _StorageUri) -> str:
    if uri.authority:
        raise _Unreachable(f"a file: path has no host; write file:///{uri.authority}{uri.path} for that folder")
    return os.path.realpath(uri.path)


def _dbfs_uri(uri: _StorageUri) -> str:
    if uri.authority or not os.path.isdir("/dbfs"):
        raise _Unreachable("Python reaches dbfs:/ through the folder /dbfs, which isn't here; use another file system")
    return f"/dbfs{uri.path}"


def _s3_uri(uri: _StorageUri) -> str:
    """Return Arrow's URI of a location in S3; raises _Unreachable if its keys are only in Spark's settings."""
    _check_bucket(uri)

    def setting(name: str) -> str | None:
        return uri.setting(f"fs.s3a.bucket.{uri.authority}.{name}", f"fs.s3a.{name}")

    key = setting("access.key")
    if key is not None and key != os.environ.get("AWS_ACCESS_KEY_ID"):
        raise _Unreachable(
            "its keys are in Spark's settings (fs.s3a.access.key), which Arrow does not read; "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead, for the driver and the executors"
        )
    endpoint, plain = setting("endpoint") or "", setting("connection.ssl.enabled") == "false"
    settings = {
        "endpoint_override": endpoint.split("://")[-1].rstrip("/"),
        "scheme": "http" if plain or endpoint.startswith("http://") else "",
        "region": setting("endpoint.region") or "",
    }
    parameters = urlencode({name: value for name, value in settings.items() if value})
    return f"s3://{uri.authority}{quote(uri.path)}{'?' if parameters else ''}{parameters}"


def _azure_uri(uri: _StorageUri) -> str:
    """Return Arrow's URI of a location in Azure; raises _Unreachable without a host, or if Spark holds its key."""
    host = uri.authority.partition("@")[2]
    if not host:
        raise _Unreachable(f"write {uri.scheme}://container@account.dfs.core.windows.net/...")
    if uri.setting(f"fs.azure.account.key.{host}", "fs.azure.account.key") is not None:
        raise _Unreachable(
            "its key is in Spark's settings (fs.azure.account.key), which Arrow does not read; "
            "use Azure's own environment variables or an identity instead"
        )
    return f"{uri.scheme}://{uri.authority}{quote(uri.path)}"


def _check_bucket(uri: _StorageUri) -> None:
    if not uri.authority:
        raise _Unreachable(f"it names no bucket; write {uri.scheme}://bucket/...")


def _cloud_uri(uri: _StorageUri) -> str:
    _check_bucket(uri)
    return f"{uri.scheme}://{uri.authority}{quote(uri.path)}"


def _hdfs_uri(uri: _StorageUri) -> str:
    """Return Arrow's URI of a location in HDFS, by default on fs.defaultFS's host; raises _Unreachable without one."""
    default = _default_system(uri.spark)
    authority = uri.authority or (parts(split(default)[1])[0] if default.startswith(f"{uri.scheme}:") else "")
    if not authority:
        raise _Unreachable(f"it names no host, and Spark's fs.defaultFS is {default}; write {uri.scheme}://host/...")
    return f"{uri.scheme}://{authority}{quote(uri.path)}"


_SCHEMES: dict[str, Callable[[_StorageUri], str]] = {
    "file": _file_uri,
    "dbfs": _dbfs_uri,
    "s3": _s3_uri,
    "s3a": _s3_uri,
    "gs": _cloud_uri,
    "abfs": _azure_uri,
    "abfss": _azure_uri,
    "hdfs": _hdfs_uri,
    "viewfs": _hdfs_uri,
}
