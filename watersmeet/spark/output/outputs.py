"""Where a batch's rows go: results to the sink, rows that are not joined to side outputs."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from watersmeet.batch import side_outputs as sides
from watersmeet.batch.fuse import ResultWriter
from watersmeet.spark.checkpoint.paths import Place
from watersmeet.spark.output.files import Folder
from watersmeet.spark.output.sinks import FileSink, Results, Sink
from watersmeet.spark.run.tree import FrameTree
from watersmeet.state.manifest.delivery import Delivery
from watersmeet.state.store.store import Store


@dataclass(frozen=True, slots=True)
class Outputs:
    """The sink and the side outputs of one start of a query.

    Attributes:
        sink: Where results go.
        plain: Whether result files hold the output as it is.
        sides: Folders for late and rejected rows, by kind.
        owner: The checkpoint whose results these are.
    """

    sink: Sink
    plain: bool
    sides: Mapping[str, Folder] = field(default_factory=dict)
    owner: str = ""

    def prepare(self, frames: FrameTree, place: Place, store: Store, schemas: Sequence[tuple[str, pa.Schema]]) -> None:
        """Make the output folders, and in empty ones files that have columns and no rows.

        Args:
            frames: The join.
            place: Where its store is.
            store: The store.
            schemas: The streams, with the columns that rows have which are not taken.
        """
        made: list[str] = []

        def none() -> Results:
            made.append(_without_rows(store, frames.query.file_schema))
            read = partial(frames.read, frames.spark.range(0), [place.inside(file).spark for file in made], "")
            return Results(frames.spark, -1, place, made, read, self.plain)

        self.sink.prepare(none)
        store.remove(made)
        for kind, folder in self.sides.items():
            for name, schema in schemas if kind != "punctuation" else ():  # those have columns of their own
                side = folder.inside(name)
                if side.make():
                    path = f"sides/empty-{kind}-{uuid.uuid4().hex}.parquet"
                    sides.write(store, path, schema.empty_table())
                    side.deliver(side.given([path], place, -1), place)

    def write(self, results: Results, rows: Mapping[str, Mapping[str, list[str]]]) -> tuple[Delivery, ...]:
        """Write a batch's results and the files of rows that are not joined, or make them ready to be delivered.

        Args:
            results: The results.
            rows: Files of the store, by kind and stream.
        """
        beside = (
            folder.inside(name).given(files, results.store, results.batch)
            for kind, folder in self.sides.items()
            for name, files in rows.get(kind, {}).items()
        )
        return (*self.sink.write(results), *beside)

    def deliver(self, deliveries: Sequence[Delivery], store: Place) -> None:
        """Let files of a committed batch appear, as far as they have not.

        Raises:
            StateError: If some are not this checkpoint's; none has appeared then.
        """
        folders = [self._folder_of(delivery) for delivery in deliveries]
        for folder, delivery in zip(folders, deliveries, strict=True):
            folder.check(delivery)
        for folder, delivery in zip(folders, deliveries, strict=True):
            folder.deliver(delivery, store)
        self.sink.delivered([delivery for delivery in deliveries if delivery.output == "path"])

    def _folder_of(self, delivery: Delivery) -> Folder:
        """Return where a delivery goes: to the output it was made for, wherever that is now; if gone, where it was."""
        base, _, name = delivery.output.partition("/")
        own = [self.sink.folder] if isinstance(self.sink, FileSink) else []
        for folder in (*own, *self.sides.values()):
            if folder.output == base:
                return folder.inside(name) if name else folder
        return Folder(Place(*delivery.folder), delivery.output, self.owner)

    def withdraw(self, first: int, check: Callable[[], None]) -> None:
        """Remove what earlier runs left of a batch and of those after it; see `Folder.withdraw`."""
        self.sink.restarted(first, check)
        for folder in self.sides.values():
            folder.withdraw(first, check)

    def retract(self, batch: int) -> None:
        """Remove what this run has made ready of a batch which another has done."""
        self.sink.retract(batch)  # what is for side outputs was made ready in the store


def _without_rows(store: Store, schema: pa.Schema) -> str:
    """Write a file of results without any; return where it is."""
    writer = ResultWriter(store, schema, f"empty-{uuid.uuid4().hex}")
    writer.write(pa.RecordBatch.from_pylist([], schema=schema))
    writer.close()
    return writer.files[0]
