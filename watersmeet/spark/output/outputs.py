"""Where a batch's rows go: results to the sink, rows that are not joined to side outputs."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from watersmeet.batch import side_outputs as sides
from watersmeet.batch.fuse import ResultWriter
from watersmeet.spark.checkpoint.paths import Location
from watersmeet.spark.output.files import Folder
from watersmeet.spark.output.sinks import FileSink, Results, Sink
from watersmeet.spark.run.frame_tree import FrameTree
from watersmeet.state.manifest.delivery import Delivery
from watersmeet.state.store.store import Store


@dataclass(frozen=True, slots=True)
class Outputs:
    """The sink and the side outputs of one start of a query.

    Attributes:
        sink: Where results go.
        plain: Whether result files hold the output unchanged.
        sides: The folders of side outputs, by kind.
        owner: The checkpoint to which they belong.
    """

    sink: Sink
    plain: bool
    sides: Mapping[str, Folder] = field(default_factory=dict)
    owner: str = ""

    def prepare(
        self, frames: FrameTree, location: Location, store: Store, schemas: Sequence[tuple[str, pa.Schema]]
    ) -> None:
        """Make the output folders, and files with columns but no rows in empty ones.

        Args:
            frames: The join.
            location: Where the store is.
            store: The store.
            schemas: The streams, with the columns that their rows have in side outputs.
        """
        files: list[str] = []

        def none() -> Results:
            files.append(_write_empty(store, frames.query.file_schema))
            read = partial(frames.read, frames.spark.range(0), [location.inside(file).spark for file in files], "")
            return Results(frames.spark, -1, location, files, read, self.plain)

        self.sink.prepare(none)
        store.remove(files)
        for kind, folder in self.sides.items():
            for name, schema in schemas if kind != "punctuation" else ():  # those have columns of their own
                side = folder.inside(name)
                if side.make():
                    path = f"sides/empty-{kind}-{uuid.uuid4().hex}.parquet"
                    sides.write(store, path, schema.empty_table())
                    side.deliver(side.delivery_of_files([path], location, -1), location)

    def write(self, results: Results, rows: Mapping[str, Mapping[str, list[str]]]) -> tuple[Delivery, ...]:
        """Write a batch's results, or stage them; return the deliveries that must follow its commit.

        Side outputs are among these: their files are in the store.

        Args:
            results: The results.
            rows: The files of side outputs in the store, by kind and stream.
        """
        beside = (
            folder.inside(name).delivery_of_files(files, results.store, results.batch)
            for kind, folder in self.sides.items()
            for name, files in rows.get(kind, {}).items()
        )
        return (*self.sink.write(results), *beside)

    def deliver(self, deliveries: Sequence[Delivery], store: Location) -> None:
        """Move the files of a committed batch to their outputs, unless they are there already.

        Raises:
            StateError: If some belong to another checkpoint; then none is moved.
        """
        folders = [self._folder_of(delivery) for delivery in deliveries]
        for folder, delivery in zip(folders, deliveries, strict=True):
            folder.check(delivery)
        for folder, delivery in zip(folders, deliveries, strict=True):
            folder.deliver(delivery, store)
        self.sink.on_delivery([delivery for delivery in deliveries if delivery.output == "path"])

    def _folder_of(self, delivery: Delivery) -> Folder:
        """Return the folder of a delivery's output, wherever that is now; without that output, the former folder."""
        base, _, name = delivery.output.partition("/")
        own = [self.sink.folder] if isinstance(self.sink, FileSink) else []
        for folder in (*own, *self.sides.values()):
            if folder.output == base:
                return folder.inside(name) if name else folder
        return Folder(Location(*delivery.folder), delivery.output, self.owner)

    def withdraw(self, first: int, check: Callable[[], None]) -> None:
        """Remove the files that earlier runs left behind of a batch and of later ones; see `Folder.withdraw`."""
        self.sink.on_start(first, check)
        for folder in self.sides.values():
            folder.withdraw(first, check)

    def retract(self, batch: int) -> None:
        """Remove the files that this run has staged for a batch that another run has committed."""
        self.sink.retract(batch)  # side outputs are staged in the store


def _write_empty(store: Store, schema: pa.Schema) -> str:
    """Write a file of results without rows; return its path."""
    writer = ResultWriter(store, schema, f"empty-{uuid.uuid4().hex}")
    writer.write(pa.RecordBatch.from_pylist([], schema=schema))
    writer.close()
    return writer.files[0]
