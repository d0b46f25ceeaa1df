"""Output folders: a batch's files are made ready aside, and appear once, for good, when its manifest is written."""

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import pyarrow.fs as pafs

from watersmeet.batch.fuse import RESULTS
from watersmeet.errors import AFRESH, StateError
from watersmeet.spark.checkpoint.paths import Place
from watersmeet.spark.output.moving import Mover
from watersmeet.state.manifest.delivery import STAGING, Delivery, is_staged
from watersmeet.state.store.local_files import files_below, sync
from watersmeet.state.store.store import Store


@dataclass(frozen=True, slots=True)
class Folder:
    """An output folder on any file system that pyarrow opens.

    Attributes:
        place: Where it is.
        output: Which of the query's outputs it is, such as `path` or `latePath/a`.
        owner: The checkpoint whose files these are; part of their names, so that a replay touches no others.
        run: The run of the query that writes them now; part of their names, too.
        durable: Whether what is published on this host's file system survives a loss of power.
    """

    place: Place
    output: str
    owner: str = ""
    run: str = ""
    durable: bool = False

    def written_by(self, owner: str, run: str, durable: bool) -> "Folder":
        """Return the folder as a run of a checkpoint's query writes to it."""
        return replace(self, owner=owner, run=run, durable=durable)

    # -- before the manifest

    def staging(self, batch: int, store: Place) -> str:
        """Return where a batch's files may be made ready: a new folder, in the store or hidden in this one.

        In the store if both are on this host: who reads all that lies below the folder then sees nothing unfinished.
        """
        base = RESULTS if self.place.is_local and store.is_local else STAGING
        return f"{base}/{self.owner}-b{batch}-{self.run}-{uuid.uuid4().hex}"

    def staged_at(self, source: str, store: Place) -> Place:
        """Return where something is that was made ready."""
        return (self.place if is_staged(source) else store).inside(source)

    def ready(self, staged: str, store: Place, batch: int, ending: str) -> Delivery:
        """Return the delivery of the data files in a staging folder, partition folders kept."""
        system, source = _opened(self.staged_at(staged, store))
        moves: list[tuple[str, str]] = []
        for path in sorted(_files(system, source)):
            inside = PurePosixPath(path).relative_to(source)
            if inside.name.startswith(("_", ".")):
                continue
            _, dot, suffix = inside.name.partition(".")
            name = f"{self._name(batch, len(moves))}{dot}{suffix or ending}"
            moves.append((f"{staged}/{inside}", str(inside.parent / name)))
        return self._delivery(moves, store)

    def discard(self, staged: str, store: Place) -> None:
        """Remove a staging folder in which nothing was made ready."""
        _remove_folders(_opened(self.place if is_staged(staged) else store), [staged])

    def given(self, files: Sequence[str], store: Place, batch: int) -> Delivery:
        """Return the delivery of finished files of the store."""
        names = (f"{self._name(batch, at)}{PurePosixPath(file).suffix}" for at, file in enumerate(files))
        return self._delivery(list(zip(files, names, strict=True)), store)

    def _delivery(self, moves: Iterable[tuple[str, str]], store: Place) -> Delivery:
        made = Delivery(self.output, (self.place.spark, self.place.arrow), tuple(moves))
        sources = [self.staged_at(source, store) for source, _ in made.moves]
        if self.durable:
            # [!] Names, too: a file that isn't where it was made ready counts as delivered.
            sync(source.arrow for source in sources if source.is_local)
        return made

    # -- after it

    def check(self, delivery: Delivery) -> None:
        """Raise a StateError if a manifest's delivery holds files that are not this checkpoint's."""
        for source, target in delivery.moves:
            foreign = is_staged(source) and not source.startswith(f"{STAGING}/{self.owner}-b")
            if foreign or self._batch_of(PurePosixPath(target).name) is None:
                raise StateError(
                    f"A manifest is to move {source!r} to {target!r} in {self.place.spark}, and these are not names of "
                    f"this checkpoint's files; restore the manifest or {AFRESH}."
                )

    def deliver(self, delivery: Delivery, store: Place) -> None:
        """Let the files of a delivery appear, as far as they have not; it may have been meant for another place.

        A name appears only with all its bytes, and once it is there, nothing replaces or removes it.
        """
        durable, before = self.durable and self.place.is_local, Place(*delivery.folder)
        mover, roots = Mover(_opened(self.place), durable, lambda: _opened(before)), dict[Place, None]()
        for source, target in delivery.moves:
            places = [before, self.place] if is_staged(source) else [store]
            for root in dict.fromkeys(places):
                mover.move(_opened(root), source, target)
                roots[root] = None
        mover.finish()
        staged = {"/".join(source.split("/")[:2]) for source, _ in delivery.moves if source.count("/") > 1}
        for root in roots:
            _remove_folders(_opened(root), staged)

    # -- after a restart, or a loss of the checkpoint

    def withdraw(self, first: int, check: Callable[[], None]) -> None:
        """Remove whatever earlier runs left behind of a batch and of those after it.

        Files that are made ready count, and where an older copy of the checkpoint was restored, those that had appeared
        since it was made: they will be written again.

        Args:
            first: The batch.
            check: Raises if another run has taken over, whose files must stay.
        """
        system, base = _opened(self.place)
        paths = [path for path in _files(system, base) if self._is_left(path, first)]
        check()  # [!] after the look: a later run's files are not among these
        for path in paths:
            with suppress(FileNotFoundError):
                system.delete_file(path)

    def _is_left(self, path: str, first: int) -> bool:
        """Tell whether a file holds, or was to hold, results of a batch from the first on."""
        batch = self._batch_of(PurePosixPath(path).name)
        return (batch is not None and batch >= first) or f"/{STAGING}/{self.owner}-" in path

    def retract(self, batch: int) -> None:
        """Remove what this very run has made ready here of a batch, which another run has done meanwhile."""
        system, base = _opened(self.place)
        for path in list(_files(system, f"{base}/{STAGING}")):
            if f"/{self.owner}-b{batch}-{self.run}-" in path:
                with suppress(FileNotFoundError):
                    system.delete_file(path)

    # -- anything else

    def make(self) -> bool:
        """Make the folder unless it is there; return whether it holds nothing that readers see."""
        system, base = _opened(self.place)
        system.create_dir(base, recursive=True)
        if self.place.is_local:
            with os.scandir(base) as entries:
                return all(entry.name.startswith(("_", ".")) for entry in entries)
        found = system.get_file_info(pafs.FileSelector(base, allow_not_found=True))
        return all(info.base_name.startswith(("_", ".")) for info in found)

    def has(self, name: str) -> bool:
        """Tell whether something of that name lies in it."""
        system, base = _opened(self.place)
        return bool(system.get_file_info(f"{base}/{name}").type != pafs.FileType.NotFound)

    def inside(self, name: str) -> "Folder":
        """Return a folder of this one."""
        return replace(self, place=self.place.inside(name), output=f"{self.output}/{name}")

    def _name(self, batch: int, number: int) -> str:
        what = "empty" if batch < 0 else f"b{batch}"
        return f"part-{what}-{self.owner}-{self.run}-{number:05d}"

    def _batch_of(self, name: str) -> int | None:
        """Return the batch that a file of this checkpoint's holds results of, hidden or not; None for any other."""
        found = re.match(rf"\.?part-b(\d+)-{re.escape(self.owner)}-", name)
        return int(found[1]) if found else None


def _opened(place: Place) -> tuple[pafs.FileSystem, str]:
    """Return the file system that a place is on, and its path there."""
    if place.is_local:
        return pafs.LocalFileSystem(), place.arrow
    system, base = Store(place.arrow).remote("")
    return system, base.rstrip("/")


def _files(system: pafs.FileSystem, base: str) -> Iterator[str]:
    if isinstance(system, pafs.LocalFileSystem):  # Arrow fails on names that are not UTF-8, whoever's they are
        return files_below(base)
    selector = pafs.FileSelector(base, recursive=True, allow_not_found=True)
    return (info.path for info in system.get_file_info(selector) if info.type == pafs.FileType.File)


def _remove_folders(root: tuple[pafs.FileSystem, str], folders: Iterable[str]) -> None:
    system, base = root
    for folder in folders:
        with suppress(FileNotFoundError):
            system.delete_dir(f"{base}/{folder}")
