"""What a path means: the one place that decides it, for checkpoints, outputs and side outputs alike.

Spark hands paths to Hadoop, the engine's own files are opened by Arrow. Both must come to the same place, or the path
is refused.
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
class Place:
    """A folder or file as Spark spells it, and as Arrow does.

    Attributes:
        spark: What Spark is given to write to.
        arrow: A path on this host without links, so that one place has one name, or a URI that `pyarrow.fs` opens.
    """

    spark: str
    arrow: str

    @property
    def is_local(self) -> bool:
        """Whether it is on this host's file system."""
        return "://" not in self.arrow

    def inside(self, name: str) -> "Place":
        """Return a place below this one."""
        spelled = f"{self.spark.rstrip('/')}/{name}"
        if self.is_local:
            return Place(spelled, f"{self.arrow.rstrip('/')}/{name}")
        uri, mark, settings = self.arrow.partition("?")
        return Place(spelled, f"{uri.rstrip('/')}/{quote(name)}{mark}{settings}")


def place(spark: SparkSession, given: str, what: str) -> Place:
    """Return the place that a path means to Spark.

    Args:
        spark: The session.
        given: The path, as a user writes it.
        what: What it is for, as in "checkpointLocation".

    Raises:
        DefinitionError: If Python can't come to the same place.
    """
    if not given or "\0" in given or not _is_text(given):
        raise DefinitionError(f"{what} {given!r} is not a path.")
    if given != given.strip():
        raise DefinitionError(f"{what} {given!r} begins or ends with a blank; take it away.")
    if given.split("/")[0].startswith("~"):
        home = os.path.expanduser(given)
        raise DefinitionError(f"{what} '{given}': Spark takes ~ for a folder of that name; write {home}, or ./{given}.")
    scheme, rest = split(given)
    if not scheme:
        return _without_scheme(spark, given, what)
    authority, path = parts(rest)
    if not path.startswith("/"):
        raise DefinitionError(f"{what} '{given}': what follows {scheme}: must begin with a slash; or write ./{given}.")
    open_as = _SCHEMES.get(scheme)
    if open_as is None:
        known = ", ".join(sorted(_SCHEMES))
        raise DefinitionError(
            f"{what} '{given}': Python can't open '{scheme}:'; use one of {known}, or ./{given} for a folder."
        )
    try:
        return Place(given.rstrip("/") or given, open_as(_Asked(spark, scheme, authority, normal(path))))
    except _Unreachable as problem:
        raise DefinitionError(f"{what} '{given}': {problem}.") from None


def text_of(given: object, what: str) -> str:
    """Return a path as text, whatever it was given as.

    Raises:
        DefinitionError: If a pathlib.Path was made of a URL, which it has cut a slash from.
    """
    if isinstance(given, PurePath) and split(str(given))[0]:
        raise DefinitionError(f"{what} {given!r}: a Path can't hold a URL, it drops a slash; give it as text.")
    return str(given)


def _is_text(given: str) -> bool:
    try:
        return bool(given.encode())
    except UnicodeEncodeError:
        return False


def absolute(spark: SparkSession, given: str) -> str:
    """Return a path as Spark is to be given it where Spark alone goes there: its folder may not be Python's."""
    scheme, _ = split(given)
    return given if scheme or not _is_file(_default(spark)) else _absolute(given)


def reached(found: Place, what: str) -> Place:
    """Return a place once Python has been there.

    Raises:
        DefinitionError: If it can't be reached.
    """
    if not found.is_local:
        try:
            system, base = Store(found.arrow).remote("")
            system.get_file_info(base.rstrip("/"))
        except (OSError, pa.ArrowException) as error:
            said = str(error).strip().splitlines()[0].rstrip(".")
            raise DefinitionError(
                f"{what} '{found.spark}' can't be reached from Python: {said}. Arrow connects directly, not through "
                "Spark: check that it has what it needs (access, a client library, a network)."
            ) from None
    return found


class _Unreachable(Exception):
    """Why Python can't come to a place."""


@dataclass(frozen=True, slots=True)
class _Asked:
    spark: SparkSession
    scheme: str
    authority: str
    path: str

    def setting(self, *names: str) -> str | None:
        """Return the first of Hadoop's settings that is there."""
        conf = _hadoop(self.spark)
        found = (conf.get(name) for name in names)
        return next((str(value) for value in found if value), None)


def _without_scheme(spark: SparkSession, given: str, what: str) -> Place:
    default = _default(spark)
    if _is_file(default):
        path = _absolute(given)
        return Place(path, os.path.realpath(path))
    if not given.startswith("/"):
        raise DefinitionError(
            f"{what} '{given}': Spark's file system is {default} (fs.defaultFS); give the full path, with its scheme."
        )
    return place(spark, f"{default.rstrip('/')}{given}", what)


def _absolute(given: str) -> str:
    # Spark would resolve a relative path against the JVM's folder, and take two slashes for the start of a host.
    return "/" + os.path.abspath(given).lstrip("/")


def _hadoop(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()


def _default(spark: SparkSession) -> str:
    jvm: Any = spark._jvm
    return str(jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(_hadoop(spark)).toString())


def _is_file(uri: str) -> bool:
    return uri.startswith("file:")


def _file(asked: _Asked) -> str:
    if asked.authority:
        raise _Unreachable(f"a file: path has no host; write file:///{asked.authority}{asked.path} for that folder")
    return os.path.realpath(asked.path)


def _dbfs(asked: _Asked) -> str:
    if asked.authority or not os.path.isdir("/dbfs"):
        raise _Unreachable("Python reaches dbfs:/ through the folder /dbfs, which isn't here; use another file system")
    return f"/dbfs{asked.path}"


def _s3(asked: _Asked) -> str:
    _check_bucket(asked)

    def setting(name: str) -> str | None:
        return asked.setting(f"fs.s3a.bucket.{asked.authority}.{name}", f"fs.s3a.{name}")

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
    given = urlencode({name: value for name, value in settings.items() if value})
    return f"s3://{asked.authority}{quote(asked.path)}{'?' if given else ''}{given}"


def _azure(asked: _Asked) -> str:
    host = asked.authority.partition("@")[2]
    if not host:
        raise _Unreachable(f"write {asked.scheme}://container@account.dfs.core.windows.net/...")
    if asked.setting(f"fs.azure.account.key.{host}", "fs.azure.account.key") is not None:
        raise _Unreachable(
            "its key is in Spark's settings (fs.azure.account.key), which Arrow does not read; "
            "use Azure's own environment variables or an identity instead"
        )
    return f"{asked.scheme}://{asked.authority}{quote(asked.path)}"


def _check_bucket(asked: _Asked) -> None:
    if not asked.authority:
        raise _Unreachable(f"it names no bucket; write {asked.scheme}://bucket/...")


def _cloud(asked: _Asked) -> str:
    _check_bucket(asked)
    return f"{asked.scheme}://{asked.authority}{quote(asked.path)}"


def _hdfs(asked: _Asked) -> str:
    default = _default(asked.spark)
    authority = asked.authority or (parts(split(default)[1])[0] if default.startswith(f"{asked.scheme}:") else "")
    if not authority:
        raise _Unreachable(f"it names no host, and Spark's fs.defaultFS is {default}; write {asked.scheme}://host/...")
    return f"{asked.scheme}://{authority}{quote(asked.path)}"


_SCHEMES: dict[str, Callable[[_Asked], str]] = {
    "file": _file,
    "dbfs": _dbfs,
    "s3": _s3,
    "s3a": _s3,
    "gs": _cloud,
    "abfs": _azure,
    "abfss": _azure,
    "hdfs": _hdfs,
    "viewfs": _hdfs,
}
