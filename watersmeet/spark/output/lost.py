"""Columns that the files of a refreshed table have lost: Spark would read NULL for them, or another column's values."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from watersmeet.errors import StateError
from watersmeet.spark.sql.catalyst import items, kind_of, quiet

FORMATS = ("ParquetFileFormat", "OrcFileFormat", "CSVFileFormat")
"""Formats whose files name their columns; JSON leaves out those that have no values."""
BY_PLACE = "CSVFileFormat"
"""Spark takes the columns of such files by their places, whatever they are called."""
LIGHTLY = {"mergeSchema": "true", "inferSchema": "false"}
"""How to look at files: at the columns of all, and not at values."""


@dataclass
class Columns:
    """The columns that the files of a table had when they were first read, for each of its folders.

    Attributes:
        name: The table's name.
        first: By folder, the columns.
        seen: By folder, the files that are known to have them.
    """

    name: str
    first: dict[str, list[str]] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)

    def check(self, table: DataFrame, read: Callable[[], DataFrame]) -> None:
        """Check that the files which are there now have the columns that the join needs; the same files still do.

        Args:
            table: The table, with the files that there are now.
            read: Returns what the join needs of it.

        Raises:
            StateError: If they lack one that they had; of files that Spark can't look at, it says so when it reads.
        """
        try:
            with quiet():
                changed = {at: found for at, found in _files(table).items() if self.seen.get(at) != found}
                lost = self._lost(read(), changed) if changed else []
        except (PySparkException, Py4JError):
            return
        if lost:
            raise StateError(
                f"Table '{self.name}' has lost the column '{lost[0]}' since the join first read it; write it with that "
                "column again, or define the join without it."
            )
        self.seen |= changed

    def _lost(self, read: DataFrame, changed: dict[str, str]) -> list[str]:
        """Return the columns that are needed and that files in changed folders lack."""
        lost = []
        for scan in items(read._jdf.queryExecution().sparkPlan().collectLeaves()):
            at = _folder(scan.relation()) if kind_of(scan) == "FileSourceScanExec" else None
            if at not in changed or at is None:
                continue
            now, placed = _columns(read, scan.relation()), kind_of(scan.relation().fileFormat()) == BY_PLACE
            first = self.first.setdefault(at, now)
            same = [old for n, old in enumerate(first) if (now[n : n + 1] == [old] if placed else old in now)]
            needed = [name for name in map(str, scan.requiredSchema().fieldNames()) if name.lower() in first]
            lost += [name for name in needed if name.lower() not in same] if now else []
        return lost


def _files(table: DataFrame) -> dict[str, str]:
    """Return the files of a table by folder, with their sizes and times, as far as they name their columns."""
    found = [leaf.relation() for leaf in items(table._jdf.queryExecution().analyzed().collectLeaves()) if _read(leaf)]
    return {_folder(relation): str(relation.location().allFiles().toString()) for relation in found}


def _read(leaf: Any) -> bool:
    """Tell whether a leaf of a plan reads files that name their columns."""
    of_files = kind_of(leaf) == "LogicalRelation" and kind_of(leaf.relation()) == "HadoopFsRelation"
    return of_files and kind_of(leaf.relation().fileFormat()) in FORMATS


def _folder(relation: Any) -> str:
    return str(relation.location().rootPaths().toString())


def _columns(frame: DataFrame, relation: Any) -> list[str]:
    """Return the columns of files, in small letters; none if there are no files."""
    options = relation.options()
    for name, value in LIGHTLY.items():
        options = options.updated(name, value)
    session, files = frame.sparkSession._jsparkSession, relation.location().allFiles()
    found = relation.fileFormat().inferSchema(session, options, files)
    return [str(name).lower() for name in found.get().fieldNames()] if found.isDefined() else []
