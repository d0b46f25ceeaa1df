"""The files that a query has written to its outputs: refused rows in side outputs, and results."""

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from watersmeet.observe.why.question import TupleSelector
from watersmeet.predicate.model import Column
from watersmeet.query.query import RESULT_TIME, Query
from watersmeet.state.store.store import Store

ColumnPath = tuple[str, ...]
"""An output column, or a field of one."""


class ResultFolder(NamedTuple):
    """A folder of results, and the format of its files."""

    folder: str
    format: str


@dataclass(frozen=True, slots=True)
class ResultCount:
    """How many results contain the tuples in question, and the first and the last batch that put some out."""

    count: int
    first: int
    last: int

    @property
    def when(self) -> str:
        """The batches in words."""
        return f"in batch {self.first}" if self.first == self.last else f"in batches {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Finds rows in the output folders of a query.

    Attributes:
        owner: The name of its checkpoint, which is part of the file names.
        sides: The folders of side outputs, by kind and stream.
        sink: The folder of results, if they go to one.
        columns: Where results show the streams' columns unchanged.
    """

    owner: str = ""
    sides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sink: ResultFolder | None = None
    columns: Mapping[Column, ColumnPath] = field(default_factory=dict)

    @property
    def folders(self) -> list[str]:
        """All output folders."""
        sides = [folder for folders in self.sides.values() for folder in folders.values()]
        return [*sides, *([] if self.sink is None else [self.sink.folder])]

    def find_refused(self, query: Query, selector: TupleSelector) -> Iterator[tuple[str, int, pa.Table]]:
        """Yield the selected rows of side outputs: the kind of output, the batch, and the row as a table.

        [!] Reads the files of the stream's side outputs, one after another.
        """
        spec = query.streams[selector.stream]
        for kind, folders in self.sides.items():
            for batch, rows in self._files(folders[spec.name], "parquet") if spec.name in folders else ():
                columns = {field: rows.column(spec.schema.names[field]) for field in selector.values}
                for at in np.flatnonzero(selector.mask(columns)).tolist():
                    yield kind, batch, rows.slice(at, 1)

    def count_results(self, selectors: Sequence[TupleSelector], optional: Collection[int] = ()) -> ResultCount | None:
        """Count the results that contain the selected tuples, reading all of their files.

        None if there is no folder of results, or they don't show a column to tell by. A tuple is told by those that
        they show, so that others with the same values there count, too.

        Args:
            selectors: The selectors of the tuples.
            optional: The streams that results may lack: NULL there does not tell a tuple from no tuple.
        """
        fields_by_selector = [
            [
                field
                for field, value in selector.values.items()
                if Column(selector.stream, field) in self.columns
                and (value.is_valid or selector.stream not in optional)
            ]
            for selector in selectors
        ]
        if self.sink is None or not fields_by_selector or not all(fields_by_selector):
            return None
        counts: list[tuple[int, int]] = []
        for batch, rows in self._files(*self.sink):
            masks = [
                selector.mask({field: self._column(rows, selector, field) for field in fields})
                for selector, fields in zip(selectors, fields_by_selector, strict=True)
            ]
            count = int(np.count_nonzero(np.logical_and.reduce(masks)))
            counts += [(batch, count)] if count else []
        batches = [batch for batch, _ in counts]
        return ResultCount(sum(count for _, count in counts), min(batches, default=0), max(batches, default=0))

    def _column(self, rows: pa.Table, selector: TupleSelector, field: int) -> pa.ChunkedArray:
        """Return a stream's column in an output file, cast to the selector's type; NULLs if the file lacks it."""
        name, *inner = self.columns[Column(selector.stream, field)]
        values = rows.column(name) if name in rows.schema.names else pa.chunked_array([pa.nulls(rows.num_rows)])
        for field_name in inner:
            values = pc.struct_field(values, field_name)
        return values.cast(selector.values[field].type)

    def _files(self, folder: str, kind: str) -> Iterator[tuple[int, pa.Table]]:
        """Yield this query's files in a folder: the batch and the rows of each.

        Files that can't be read are logged and skipped; files that are removed meanwhile are skipped.
        """
        system, base = _open_folder(folder)
        selector = pafs.FileSelector(base, recursive=True, allow_not_found=True)
        pattern = rf"part-b(\d+)-{re.escape(self.owner)}-"
        for info in system.get_file_info(selector):
            match = re.match(pattern, info.base_name)
            if match is not None and info.type == pafs.FileType.File and "/_" not in info.path[len(base) :]:
                hive = ds.partitioning(flavor="hive")
                try:
                    files = ds.dataset(
                        info.path, filesystem=system, format=kind, partitioning=hive, partition_base_dir=base
                    )
                    yield int(match[1]), files.to_table()
                except FileNotFoundError:  # withdrawn meanwhile
                    continue
                except (OSError, pa.ArrowException) as error:
                    reason = str(error).strip().splitlines()[0]
                    logging.getLogger("watersmeet").warning("%s can't be read and is skipped: %s", info.path, reason)


def _open_folder(folder: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a folder, and the folder's path in it."""
    store = Store(folder)
    if store.local is not None:
        return pafs.LocalFileSystem(), store.local.rstrip("/")
    system, base = store.remote("")
    return system, base.rstrip("/")


def columns_in_results(query: Query) -> dict[Column, ColumnPath]:
    """Return where the results of a join show the streams' columns, unless a SELECT list computes them."""
    if query.outputs:
        return {output.column: (output.name,) for output in query.outputs if output.column != RESULT_TIME}
    return {
        Column(at, field): (stream.name, name)
        for at, stream in enumerate(query.streams)
        for field, name in enumerate(stream.schema.names)
        if at not in query.hidden_streams
    }
