"""What a checkpoint says of its query: its description, the last manifest, the diary. It is only read.

No lease is taken and nothing is written, so it may be read beside a running query, after a crash, or by somebody else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watersmeet.errors import DefinitionError, StateError
from watersmeet.state.manifest import history, leases
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.claim import DESCRIPTION, is_same_folder, read_description
from watersmeet.state.manifest.leases import is_running
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store

TRIES = 3
"""How often state is read that a running query has moved on from meanwhile."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who last ran the query.

    Attributes:
        process: Who, in words; empty if nobody knows.
        ended: Whether it has ended as it should.
        silent: For how many seconds it has not renewed its lease.
        running: Whether its process is there, and runs this very checkpoint; None if that can't be seen from here.
    """

    process: str = ""
    ended: bool = False
    silent: float = 0.0
    running: bool | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What is recorded.

    Attributes:
        root: Where the store is.
        query: The description of the query.
        manifest: The state after the last batch; None before the first.
        progress: What the last batches did, oldest first.
        holder: Who runs the query.
        problem: Why state can't be read, if it can't.
    """

    root: str
    query: Mapping[str, Any] = field(default_factory=dict)
    manifest: Manifest | None = None
    progress: tuple[Mapping[str, Any], ...] = ()
    holder: Holder = field(default_factory=Holder)
    problem: str = ""


@dataclass
class Reader:
    """Reads one checkpoint again and again; what has not changed is not read again.

    Attributes:
        store: Where it is.
    """

    store: Store
    _state: tuple[Manifest, tuple[Mapping[str, Any], ...]] | None = None
    _renewed: tuple[tuple[int, bytes | None], float] | None = None

    def read(self, now: float, clock: float | None = None) -> Recorded:
        """Return what is recorded now.

        Args:
            now: Seconds, by a clock that never goes back.
            clock: The same moment in seconds since the epoch: how old the lease is at the first look. Without it, the
                lease counts as renewed just then.

        Raises:
            DefinitionError: If there is no checkpoint of a join.
        """
        if not self.store.read(DESCRIPTION):
            raise DefinitionError(
                f"{self.store.root} has no {DESCRIPTION}: give the checkpointLocation of a join that has been started."
            )
        query: Mapping[str, Any] = {}
        holder, problem = self._holder(now, clock), ""
        try:
            query = read_description(self.store)
            self._state = self._last()
        except StateError as error:
            self._state, problem = None, str(error)
        manifest, progress = self._state or (None, ())
        return Recorded(self.store.root, query, manifest, progress, holder, problem)

    def _last(self) -> tuple[Manifest, tuple[Mapping[str, Any], ...]] | None:
        """Return the last state and the diary, again if the query has removed files meanwhile."""
        for left in reversed(range(TRIES)):
            try:
                path = manifests.newest_path(self.store)
                if self._state is not None and path == self._state[0].chain[-1]:
                    return self._state
                manifest = manifests.last(self.store)
                if manifest is not None:
                    return manifest, tuple(history.load(self.store, manifest.batch))
                if path is None:
                    return None
            except StateError:
                if not left:
                    raise
        return self._state

    def _holder(self, now: float, clock: float | None) -> Holder:
        number = leases.last_number(self.store)
        holder = leases.holder(self.store, number)
        process = f"process {holder['pid']} on {holder['name']}" if holder else ""
        ended = not number or self.store.read(leases.path_of(number, "ended")) is not None
        return Holder(process, ended, self._silence(number, now, clock), self._is_run_by(holder))

    def _silence(self, number: int, now: float, clock: float | None) -> float:
        """Return for how many seconds a lease has not been renewed.

        Its file's age counts at the first look only, since clocks of other hosts may be wrong; then what is seen.
        """
        seen = number, self.store.read(leases.path_of(number, "renewed"))
        if self._renewed is None:
            written = None if clock is None else leases.renewal_time(self.store, number)
            age = 0.0 if clock is None or written is None else max(0.0, clock - written)
            self._renewed = seen, now - age
        elif self._renewed[0] != seen:
            self._renewed = seen, now
        return now - self._renewed[1]

    def _is_run_by(self, holder: Mapping[str, Any]) -> bool | None:
        """Tell whether a lease's holder runs; not if it runs another folder, of which this one is a copy."""
        running, folder = is_running(holder), self.store.local
        if not running or folder is None:
            return running
        return is_same_folder(Store(holder.get("at", folder)).local or "", folder)
