"""Output folders: a batch's files are staged aside, and appear once, for good, when its manifest is written."""

import errno
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

import pyarrow.fs as pafs

from watersmeet.batch.fuse import RESULTS
from watersmeet.errors import AFRESH, StateError
from watersmeet.spark.checkpoint.paths import Location
from watersmeet.state.manifest.delivery import STAGING, Delivery, is_staged
from watersmeet.state.store.local_files import files_below, sync, sync_bytes, sync_names
from watersmeet.state.store.store import Store

MISSING = "%s is not in %s, nor where it was staged (%s): unless somebody moved it away, its rows are lost."
NEVER_EMPTY = (".parquet", ".orc")
"""Files of these formats are never empty, even without rows."""
Root = tuple[pafs.FileSystem, str]
"""A folder: its file system, and its path there."""


@dataclass
class Mover:
    """Moves files into one folder.

    The sources of copies are removed only at the end: power may fail in between. [!] Another run may move the same
    files at the same time, before it learns that it was taken over: a copy has a name of its own until it is complete.

    Attributes:
        root: The folder.
        durable: Whether moved files survive a loss of power; on this host's file system only.
        before: Returns the folder for which the files were staged, if it may be another.
    """

    root: Root
    durable: bool = False
    before: Callable[[], Root] | None = None
    _folders: set[str] = field(default_factory=set)
    _targets: list[str] = field(default_factory=list)
    _removals: list[Callable[[], None]] = field(default_factory=list)

    def move(self, source: Root, file: str, name: str) -> None:
        """Move a file from another folder, unless it has been moved before; log a warning if it is nowhere.

        Raises:
            StateError: If the file is damaged.
            OSError: If it can't be moved, and has not been moved by another run.
        """
        (_, base), (system, start) = self.root, source
        target, origin = f"{base}/{name}", f"{start}/{file}"
        info = system.get_file_info(origin)
        if info.type != pafs.FileType.File:
            if not self._was_moved(name):
                logging.getLogger("watersmeet").warning(MISSING, name, base, origin)
            return
        if not info.size and name.endswith(NEVER_EMPTY):
            raise StateError(
                f"{origin} is empty, and should hold rows that are yet to appear in {base}: restore it, or remove it "
                "to go on without them."
            )
        self._make(os.path.dirname(target))
        try:
            self._transfer(source, origin, target)
        except OSError:
            if _is_file(system, origin) or not self._was_moved(name):
                raise
        self._targets.append(target)

    def _was_moved(self, name: str) -> bool:
        """Return whether a file is in the folder, or in the one for which it was staged."""
        roots = [self.root] if self.before is None else [self.root, self.before()]
        return any(_is_file(system, f"{base}/{name}") for system, base in roots)

    def finish(self) -> None:
        """Flush the names of moved files to disk, and remove the sources of copies."""
        if self.durable:
            sync_names(self._targets)
        for remove in self._removals:
            with suppress(FileNotFoundError):  # another run has removed it
                remove()

    def _make(self, folder: str) -> None:
        if folder not in self._folders:
            self.root[0].create_dir(folder, recursive=True)
            self._folders.add(folder)

    def _transfer(self, source: Root, origin: str, target: str) -> None:
        """Rename a file, or copy it if it is in another file system; the original is then removed later."""
        (here, base), (system, start) = self.root, source
        if isinstance(here, pafs.LocalFileSystem) and isinstance(system, pafs.LocalFileSystem):
            try:
                os.replace(origin, target)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copy_locally(origin, target)
        elif start == base and system is here:
            here.move(origin, target)
        else:
            self._copy((system, origin), target)

    def _copy_locally(self, origin: str, target: str) -> None:
        """Copy a file from another disk; one that is there already is complete. `finish` removes the original."""
        if not os.path.exists(target):
            aside = _hidden_name(target)
            shutil.copyfile(origin, aside)
            if self.durable:
                sync_bytes([aside])
            os.replace(aside, target)
        self._removals.append(lambda: os.unlink(origin))

    def _copy(self, source: Root, target: str) -> None:
        """Copy a file from another file system; one that is there is complete. `finish` removes the original."""
        here, (system, origin) = self.root[0], source
        if not _is_file(here, target):
            # [!] In an object store a file appears once it is complete; elsewhere while it is being written.
            aside = target if isinstance(here, _OBJECT_STORES) else _hidden_name(target)
            pafs.copy_files(origin, aside, system, here)
            if aside != target:
                here.move(aside, target)
        self._removals.append(lambda: system.delete_file(origin))


def _is_file(system: pafs.FileSystem, path: str) -> bool:
    return bool(system.get_file_info(path).type == pafs.FileType.File)


def _hidden_name(target: str) -> str:
    """Return a new name for a file until it is complete; `Folder.withdraw` knows by it whose it is."""
    folder, name = os.path.split(target)
    return f"{folder}/.{name}.{uuid.uuid4().hex}"


_OBJECT_STORES = tuple(
    kind for name in ("S3FileSystem", "GcsFileSystem", "AzureFileSystem") if (kind := getattr(pafs, name, None))
)


@dataclass(frozen=True, slots=True)
class Folder:
    """An output folder on any file system that pyarrow opens.

    Attributes:
        location: Where it is.
        output: Which output of the query it is, such as `path` or `latePath/a`.
        owner: The checkpoint to which its files belong; part of their names, so a replay touches no other files.
        run: The run of the query that writes now; part of the names, too.
        durable: Whether files that appear on this host's file system survive a loss of power.
    """

    location: Location
    output: str
    owner: str = ""
    run: str = ""
    durable: bool = False

    def for_run(self, owner: str, run: str, durable: bool) -> "Folder":
        """Return the folder for writing by a run of a checkpoint's query."""
        return replace(self, owner=owner, run=run, durable=durable)

    # -- before the manifest

    def staging(self, batch: int, store: Location) -> str:
        """Return a new path for staging a batch's files, in the store or hidden in this folder.

        It is in the store if both are on this host: readers of everything below the folder then see nothing unfinished.
        """
        base = RESULTS if self.location.is_local and store.is_local else STAGING
        return f"{base}/{self.owner}-b{batch}-{self.run}-{uuid.uuid4().hex}"

    def locate_staged(self, source: str, store: Location) -> Location:
        """Return the location of a staged file or folder."""
        return (self.location if is_staged(source) else store).inside(source)

    def delivery_of_staged(self, staged: str, store: Location, batch: int, ending: str) -> Delivery:
        """Return the delivery of the data files in a staging folder, which keeps partition folders.

        Args:
            staged: The staging folder.
            store: Where the store is.
            batch: The batch, which becomes part of the files' names.
            ending: The ending of files that have none.
        """
        system, source = _open(self.locate_staged(staged, store))
        moves: list[tuple[str, str]] = []
        for path in sorted(_files(system, source)):
            inside = PurePosixPath(path).relative_to(source)
            if inside.name.startswith(("_", ".")):
                continue
            _, dot, suffix = inside.name.partition(".")
            name = f"{self._name(batch, len(moves))}{dot}{suffix or ending}"
            moves.append((f"{staged}/{inside}", str(inside.parent / name)))
        return self._delivery(moves, store)

    def discard(self, staged: str, store: Location) -> None:
        """Remove a staging folder whose files are not to be delivered."""
        _remove_folders(_open(self.location if is_staged(staged) else store), [staged])

    def delivery_of_files(self, files: Sequence[str], store: Location, batch: int) -> Delivery:
        """Return the delivery of finished files of the store; if the folder is durable, flushes them to disk."""
        names = (f"{self._name(batch, at)}{PurePosixPath(file).suffix}" for at, file in enumerate(files))
        return self._delivery(list(zip(files, names, strict=True)), store)

    def _delivery(self, moves: Iterable[tuple[str, str]], store: Location) -> Delivery:
        """Return the delivery of staged files; a durable folder has their contents and names flushed to disk first."""
        delivery = Delivery(self.output, (self.location.spark, self.location.arrow), tuple(moves))
        sources = [self.locate_staged(source, store) for source, _ in delivery.moves]
        if self.durable:
            # [!] Names, too: a file that is missing from the staging folder counts as delivered.
            sync(source.arrow for source in sources if source.is_local)
        return delivery

    # -- after it

    def check(self, delivery: Delivery) -> None:
        """Check that the files of a manifest's delivery belong to this checkpoint.

        Raises:
            StateError: If they don't.
        """
        for source, target in delivery.moves:
            is_foreign = is_staged(source) and not source.startswith(f"{STAGING}/{self.owner}-b")
            if is_foreign or self._batch_of(PurePosixPath(target).name) is None:
                raise StateError(
                    f"A manifest is to move {source!r} to {target!r} in {self.location.spark}, and these are not names "
                    f"of this checkpoint's files; restore the manifest or {AFRESH}."
                )

    def deliver(self, delivery: Delivery, store: Location) -> None:
        """Move the files of a delivery into the folder, unless they are there already; removes their staging folders.

        The folder may have been elsewhere when they were staged. A name appears only with all its bytes, and once it is
        there, nothing replaces or removes it.
        """
        durable, before = self.durable and self.location.is_local, Location(*delivery.folder)
        mover, roots = Mover(_open(self.location), durable, lambda: _open(before)), dict[Location, None]()
        for source, target in delivery.moves:
            sources = [before, self.location] if is_staged(source) else [store]
            for root in dict.fromkeys(sources):
                mover.move(_open(root), source, target)
                roots[root] = None
        mover.finish()
        staged = {"/".join(source.split("/")[:2]) for source, _ in delivery.moves if source.count("/") > 1}
        for root in roots:
            _remove_folders(_open(root), staged)

    # -- after a restart, or a loss of the checkpoint

    def withdraw(self, first: int, check: Callable[[], None]) -> None:
        """Remove the files that earlier runs left behind of a batch and of later ones.

        These are staged files, incomplete copies of any batch and, where an older copy of the checkpoint was restored,
        files that had appeared since: they will be written again.

        Args:
            first: The batch.
            check: Raises if another run has taken over, whose files must stay.
        """
        system, base = _open(self.location)
        paths = [path for path in _files(system, base) if self._is_leftover(path, first)]
        check()  # [!] after the listing: a later run's files are not in it
        for path in paths:
            with suppress(FileNotFoundError):
                system.delete_file(path)

    def _is_leftover(self, path: str, first: int) -> bool:
        """Return whether a file is staged or incomplete, or holds results of the first batch or a later one."""
        name = PurePosixPath(path).name
        batch = self._batch_of(name)
        return (batch is not None and (batch >= first or name.startswith("."))) or f"/{STAGING}/{self.owner}-" in path

    def retract(self, batch: int) -> None:
        """Remove the files that this run has staged here for a batch that another run has meanwhile committed."""
        system, base = _open(self.location)
        for path in list(_files(system, f"{base}/{STAGING}")):
            if f"/{self.owner}-b{batch}-{self.run}-" in path:
                with suppress(FileNotFoundError):
                    system.delete_file(path)

    # -- in general

    def make(self) -> bool:
        """Make the folder unless it exists; return whether it holds nothing that readers see."""
        system, base = _open(self.location)
        system.create_dir(base, recursive=True)
        if self.location.is_local:
            with os.scandir(base) as entries:
                return all(entry.name.startswith(("_", ".")) for entry in entries)
        infos = system.get_file_info(pafs.FileSelector(base, allow_not_found=True))
        return all(info.base_name.startswith(("_", ".")) for info in infos)

    def has(self, name: str) -> bool:
        """Return whether the folder contains a file or folder of that name."""
        system, base = _open(self.location)
        return bool(system.get_file_info(f"{base}/{name}").type != pafs.FileType.NotFound)

    def inside(self, name: str) -> "Folder":
        """Return a folder inside this one."""
        return replace(self, location=self.location.inside(name), output=f"{self.output}/{name}")

    def _name(self, batch: int, number: int) -> str:
        what = "empty" if batch < 0 else f"b{batch}"
        return f"part-{what}-{self.owner}-{self.run}-{number:05d}"

    def _batch_of(self, name: str) -> int | None:
        """Return the batch of a file of this checkpoint, hidden or not; None for any other file."""
        match = re.match(rf"\.?part-b(\d+)-{re.escape(self.owner)}-", name)
        return int(match[1]) if match else None


def _open(location: Location) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a location, and its path there."""
    if location.is_local:
        return pafs.LocalFileSystem(), location.arrow
    system, base = Store(location.arrow).remote("")
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
