"""What a query has put out, as far as files tell: rows of side outputs, and results."""

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

from watersmeet.observe.why.asked import Asked
from watersmeet.predicate.model import Column
from watersmeet.query.query import RESULT_TIME, Query
from watersmeet.state.store.store import Store

Path = tuple[str, ...]
"""An output column, or a field of one."""


class Sink(NamedTuple):
    """A folder of results: where it is, and the format of its files."""

    folder: str
    format: str


@dataclass(frozen=True, slots=True)
class Results:
    """Results that hold what was asked for: how many, and the first and the last batch that put some out."""

    count: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where a query puts what it finds and what it does not take.

    Attributes:
        owner: The name of its checkpoint, which is part of the names of files.
        sides: The folders of side outputs, by kind and stream.
        sink: The folder of results, if it is one.
        shows: Where results show the streams' columns as they are.
    """

    owner: str = ""
    sides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sink: Sink | None = None
    shows: Mapping[Column, Path] = field(default_factory=dict)

    @property
    def folders(self) -> list[str]:
        """All these folders."""
        sides = [folder for folders in self.sides.values() for folder in folders.values()]
        return [*sides, *([] if self.sink is None else [self.sink.folder])]

    def turned_away(self, query: Query, asked: Asked) -> Iterator[tuple[str, int, pa.Table]]:
        """Yield rows of side outputs that have the values: of which kind, in which batch, and the row."""
        spec = query.streams[asked.stream]
        for kind, folders in self.sides.items():
            for batch, rows in self._files(folders[spec.name], "parquet") if spec.name in folders else ():
                own = {field: rows.column(spec.schema.names[field]) for field in asked.values}
                for at in np.flatnonzero(asked.mask(own)).tolist():
                    yield kind, batch, rows.slice(at, 1)

    def results(self, asked: Sequence[Asked], optional: Collection[int] = ()) -> Results | None:
        """Return the results that hold all that is asked for; None if that can't be told from them.

        Args:
            asked: The tuples.
            optional: The streams that results may lack: NULL there tells no tuple from none.
        """
        shown = [
            [
                field
                for field, value in one.values.items()
                if Column(one.stream, field) in self.shows and (value.is_valid or one.stream not in optional)
            ]
            for one in asked
        ]
        if self.sink is None or not shown or not all(shown):
            return None
        found: list[tuple[int, int]] = []
        for batch, rows in self._files(*self.sink):
            masks = [
                one.mask({field: self._column(rows, one, field) for field in fields})
                for one, fields in zip(asked, shown, strict=True)
            ]
            count = int(np.count_nonzero(np.logical_and.reduce(masks)))
            found += [(batch, count)] if count else []
        batches = [batch for batch, _ in found]
        return Results(sum(count for _, count in found), min(batches, default=0), max(batches, default=0))

    def _column(self, rows: pa.Table, asked: Asked, field: int) -> pa.ChunkedArray:
        name, *inner = self.shows[Column(asked.stream, field)]
        values = rows.column(name) if name in rows.schema.names else pa.chunked_array([pa.nulls(rows.num_rows)])
        for part in inner:
            values = pc.struct_field(values, part)
        return values.cast(asked.values[field].type)

    def _files(self, folder: str, kind: str) -> Iterator[tuple[int, pa.Table]]:
        """Yield this query's files in a folder: the batch, and the rows."""
        system, base = _opened(folder)
        selector = pafs.FileSelector(base, recursive=True, allow_not_found=True)
        named = rf"part-b(\d+)-{re.escape(self.owner)}-"
        for info in system.get_file_info(selector):
            match = re.match(named, info.base_name)
            if match is not None and info.type == pafs.FileType.File and "/_" not in info.path[len(base) :]:
                hive = ds.partitioning(flavor="hive")
                try:
                    read = ds.dataset(
                        info.path, filesystem=system, format=kind, partitioning=hive, partition_base_dir=base
                    )
                    yield int(match[1]), read.to_table()
                except FileNotFoundError:  # withdrawn meanwhile
                    continue
                except (OSError, pa.ArrowException) as error:
                    why = str(error).strip().splitlines()[0]
                    logging.getLogger("watersmeet").warning("%s can't be read and is passed over: %s", info.path, why)


def _opened(folder: str) -> tuple[pafs.FileSystem, str]:
    store = Store(folder)
    if store.local is not None:
        return pafs.LocalFileSystem(), store.local.rstrip("/")
    system, base = store.remote("")
    return system, base.rstrip("/")


def shown_by(query: Query) -> dict[Column, Path]:
    """Return where the results of a join show the streams' columns, if no SELECT list of expressions changes them."""
    if query.outputs:
        return {output.column: (output.name,) for output in query.outputs if output.column != RESULT_TIME}
    return {
        Column(at, field): (stream.name, name)
        for at, stream in enumerate(query.streams)
        for field, name in enumerate(stream.schema.names)
        if at not in query.hidden_streams
    }
