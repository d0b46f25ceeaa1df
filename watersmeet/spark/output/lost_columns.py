"""Columns that the files of a refreshed table have lost: Spark would read NULL or another column's values for them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from watersmeet.errors import StateError
from watersmeet.spark.sql.catalyst import items, kind_of, without_error_log

FORMATS = ("ParquetFileFormat", "OrcFileFormat", "CSVFileFormat")
"""Formats whose files name their columns; JSON leaves out those that have no values."""
POSITIONAL = "CSVFileFormat"
"""The format whose columns Spark reads by position, whatever their names."""
SCHEMA_OPTIONS = {"mergeSchema": "true", "inferSchema": "false"}
"""Options for reading schemas: the columns of all files, without a look at their values."""


@dataclass
class FileColumns:
    """The columns that the files of a table had when they were first read, by folder.

    Attributes:
        name: The table's name.
        first: The columns of each folder.
        checked: The files of each folder that are known to have them.
    """

    name: str
    first: dict[str, list[str]] = field(default_factory=dict)
    checked: dict[str, str] = field(default_factory=dict)

    def check(self, table: DataFrame, read: Callable[[], DataFrame]) -> None:
        """Check that the table's current files still have the columns that the join needs; remember which files have.

        Args:
            table: The table, with its current files.
            read: Returns a frame of what the join needs from it.

        Raises:
            StateError: If they have lost one. Files that Spark can't inspect pass: reading them raises.
        """
        try:
            with without_error_log():
                changed = {at: files for at, files in _files(table).items() if self.checked.get(at) != files}
                missing = self._missing_columns(read(), changed) if changed else []
        except (PySparkException, Py4JError):
            return
        if missing:
            raise StateError(
                f"Table '{self.name}' has lost the column '{missing[0]}' since the join first read it; write it with "
                "that column again, or define the join without it."
            )
        self.checked |= changed

    def _missing_columns(self, frame: DataFrame, changed: dict[str, str]) -> list[str]:
        """Return the columns that the join needs and that files in changed folders lack.

        Remembers the columns of a folder when it is first seen. Has Spark plan the frame, and read the files' schemas.
        """
        missing = []
        for scan in items(frame._jdf.queryExecution().sparkPlan().collectLeaves()):
            at = _folder(scan.relation()) if kind_of(scan) == "FileSourceScanExec" else None
            if at not in changed or at is None:
                continue
            now, is_positional = _columns(frame, scan.relation()), kind_of(scan.relation().fileFormat()) == POSITIONAL
            first = self.first.setdefault(at, now)
            same = [old for n, old in enumerate(first) if (now[n : n + 1] == [old] if is_positional else old in now)]
            required = [name for name in map(str, scan.requiredSchema().fieldNames()) if name.lower() in first]
            missing += [name for name in required if name.lower() not in same] if now else []
        return missing


def _files(table: DataFrame) -> dict[str, str]:
    """Return the files of a table by folder, with their sizes and times, if their format names columns."""
    leaves = items(table._jdf.queryExecution().analyzed().collectLeaves())
    relations = [leaf.relation() for leaf in leaves if _reads_files(leaf)]
    return {_folder(relation): str(relation.location().allFiles().toString()) for relation in relations}


def _reads_files(leaf: Any) -> bool:
    """Return whether a leaf of a plan reads files of a format that names columns."""
    is_files = kind_of(leaf) == "LogicalRelation" and kind_of(leaf.relation()) == "HadoopFsRelation"
    return is_files and kind_of(leaf.relation().fileFormat()) in FORMATS


def _folder(relation: Any) -> str:
    return str(relation.location().rootPaths().toString())


def _columns(frame: DataFrame, relation: Any) -> list[str]:
    """Return the lower-case columns of files, whose schemas Spark reads; none if there are no files."""
    options = relation.options()
    for name, value in SCHEMA_OPTIONS.items():
        options = options.updated(name, value)
    session, files = frame.sparkSession._jsparkSession, relation.location().allFiles()
    schema = relation.fileFormat().inferSchema(session, options, files)
    return [str(name).lower() for name in schema.get().fieldNames()] if schema.isDefined() else []
