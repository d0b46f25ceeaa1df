"""The lease of a store: at most one run works with it at a time.

Leases are numbered, and a number is given once: whoever publishes the next one has it. A holder renews its lease by
time. It may be taken over once it has ended, once its process is known to be gone, or once it was not renewed for as
long as the next one watched it: no clock of another host is believed. Who lost its lease must not publish any more.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from watersmeet.errors import StateError
from watersmeet.state.manifest.claim import is_same_folder
from watersmeet.state.manifest.generations import last_fence
from watersmeet.state.manifest.leases import (
    ENDINGS,
    FOLDER,
    host_id,
    is_running,
    last_number,
    number_of,
    path_of,
    this_process,
)
from watersmeet.state.manifest.leases import EXPIRES as EXPIRES
from watersmeet.state.manifest.leases import holder as holder_of
from watersmeet.state.store.formats import seal
from watersmeet.state.store.store import Store

RENEWED = 4.0
"""Seconds between two renewals."""
TRIES = 10
"""Of taking a lease that others take as well."""
LOOKED = 0.5
"""Seconds between two looks at somebody else's lease, or at whether one's own is still needed."""


class Stopped(StateError):
    """The query was stopped while a batch was under way: nothing is wrong."""


@dataclass
class Lease:
    """A lease that this process holds.

    Attributes:
        store: What it is of.
        number: Its number.
        needed: Tells whether the run that it was taken for still goes on.
    """

    store: Store
    number: int
    needed: Callable[[], bool] = lambda: True
    _token: str = field(default_factory=lambda: uuid.uuid4().hex)
    _over: threading.Event = field(default_factory=threading.Event)

    def take(self) -> bool:
        """Take the lease and renew it from now on; return False if somebody else was quicker."""
        _mine[self._token] = self
        try:
            return self._taken()
        except BaseException:  # [!] such as Ctrl-C: without an entry here, it is free for the next one
            self._over.set()
            _mine.pop(self._token, None)
            raise

    def _taken(self) -> bool:
        taken = self.store.publish(
            path_of(self.number), seal(this_process() | {"token": self._token, "at": self.store.root})
        )
        # [!] Its number may have been given, and forgotten, since it was the next one: the last one has the lease.
        if not taken or not self.held():
            del _mine[self._token]
            return False
        self.store.remove(name for name in self.store.names(FOLDER) if 0 < number_of(name, ENDINGS) < self.number)
        threading.Thread(target=self._renew, name="watersmeet-lease", daemon=True).start()
        return True

    def check(self) -> None:
        """Raise a StateError if somebody else has taken the lease over; to be called before anything is published."""
        if self._over.is_set():
            raise Stopped("The query was stopped in the middle of a batch; the next start repeats that batch.")
        last = last_number(self.store)
        if last < self.number or (last == self.number and not self._is_own()):
            raise StateError(
                f"The lease of the checkpoint at {self.store.root} is gone: somebody removed or replaced its files "
                "while the query ran. It stops here; start it again if nobody else uses the checkpoint."
            )
        if last > self.number:
            raise StateError(
                f"Another run has taken over the checkpoint at {self.store.root}, since this one did not renew its "
                f"lease for {EXPIRES:g} seconds; this one stops here."
            )

    def held(self) -> bool:
        """Tell whether the lease is still this run's."""
        return not self._over.is_set() and last_number(self.store) == self.number and self._is_own()

    def _is_own(self) -> bool:
        """Tell whether its file is this run's: where a checkpoint was replaced, another run may have the number."""
        return holder_of(self.store, self.number).get("token") == self._token

    def end(self) -> None:
        """Give the lease back."""
        if not self._over.is_set():
            self._over.set()
            _mine.pop(self._token, None)
            with suppress(OSError, StateError):  # then it expires
                if self._is_own():
                    self.store.publish(path_of(self.number, "ended"), b"")

    def _renew(self) -> None:
        due = 0.0
        while not self._over.wait(LOOKED):
            if not self._is_needed():
                self.end()
            elif time.monotonic() >= due:
                due = time.monotonic() + RENEWED
                with suppress(OSError, StateError):  # a disk that is full for a while; if it lasts, the lease expires
                    if self._is_own():
                        self.store.overwrite(path_of(self.number, "renewed"), uuid.uuid4().hex.encode())

    def _is_needed(self) -> bool:
        try:
            return self.needed()
        except Exception:  # Spark itself is gone
            return False


_mine: dict[str, Lease] = {}
"""The leases that this process holds or is about to take, by their tokens."""


def take(store: Store) -> Lease:
    """Take the lease of a store, and renew it from now on.

    Raises:
        StateError: If somebody else holds it; nothing was changed then.
    """
    for _ in range(TRIES):
        number = last_number(store)
        if number and not _is_free(store, number):
            raise StateError(
                f"The checkpoint at {store.root} is in use by {_said(store, number)}; stop that query first, or use "
                "another checkpointLocation."
            )
        # [!] What fences are counted by never begins anew, also where the files of leases were removed.
        lease = Lease(store, max(number, last_fence(store).generation) + 1)
        if lease.take():
            return lease
    raise StateError(
        f"The checkpoint at {store.root} can't be leased: {FOLDER}/ contains something other than files; remove it."
    )


def _is_free(store: Store, number: int) -> bool:
    """Tell whether a lease may be taken over; watches it if that can't be told at once."""
    seen, since = store.read(path_of(number, "renewed")), time.monotonic()
    while True:
        holder = holder_of(store, number)
        if store.read(path_of(number, "ended")) is not None or _is_gone(store, holder):
            return True
        if store.read(path_of(number, "renewed")) != seen or _is_here(holder):
            return False
        if time.monotonic() - since > EXPIRES:
            return True
        time.sleep(LOOKED)


def _is_gone(store: Store, holder: Mapping[str, Any]) -> bool:
    """Tell whether a lease's holder is known to be gone."""
    if holder and not is_same_folder(holder["at"], store.root):  # it came with a copy of the checkpoint
        return True
    if _is_here(holder):
        lease = _mine.get(holder["token"])
        return lease is None or not lease._is_needed()
    return is_running(holder) is False


def _is_here(holder: Mapping[str, Any]) -> bool:
    """Tell whether a lease's holder is this very process."""
    return host_id() is not None and this_process().items() <= holder.items()


def _said(store: Store, number: int) -> str:
    holder = holder_of(store, number)
    if _is_here(holder):
        return "another query of this program"
    return f"process {holder['pid']} on {holder['name']}" if holder else "another process"
