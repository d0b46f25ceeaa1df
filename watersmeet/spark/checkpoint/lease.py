"""The lease of a store: at most one run uses it at a time.

Leases are numbered, and each number is used once: the run that publishes the next one holds it and renews it. A lease
may be taken over once it has ended, its process is known to be gone, or the next run has watched it for `EXPIRES`
seconds without a renewal: no clock of another host is trusted. A run that has lost its lease must publish nothing more,
and is stopped once that is seen.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from watersmeet.errors import StateError
from watersmeet.state.manifest.claim import is_same_folder
from watersmeet.state.manifest.generations import generation_of, last_fence
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
from watersmeet.state.store.file_format import seal
from watersmeet.state.store.store import Store

RENEW_SECONDS = 4.0
"""Seconds between two renewals."""
TRIES = 10
"""Attempts to take a lease that other runs take at the same time."""
POLL_SECONDS = 0.5
"""Seconds between two checks of another run's lease, or of whether the own one is still needed."""


class QueryStopped(StateError):
    """The query was stopped in the middle of a batch, which is not an error."""


class LeaseLost(StateError):
    """Another run has taken over the lease, or its files are gone."""


@dataclass
class Lease:
    """A lease that this process holds.

    Attributes:
        store: The store.
        number: Its number.
        is_needed: Returns whether the run that took it still goes on.
        stop: Stops that run because the lease is lost; called in a thread of the lease's, again until it is over.
    """

    store: Store
    number: int
    is_needed: Callable[[], bool] = lambda: True
    stop: Callable[[LeaseLost], None] = lambda loss: None
    _token: str = field(default_factory=lambda: uuid.uuid4().hex)
    _over: threading.Event = field(default_factory=threading.Event)
    _loss: LeaseLost | None = None

    @property
    def generation(self) -> str:
        """The generation of what is written under it."""
        return generation_of(self.number, self._token)

    def take(self) -> bool:
        """Take the lease, and have a thread renew it; return False, holding nothing, if another run was quicker."""
        _own_leases[self._token] = self
        try:
            return self._publish()
        except BaseException:  # [!] such as Ctrl-C: without an entry here, the lease is free
            self._over.set()
            _own_leases.pop(self._token, None)
            raise

    def _publish(self) -> bool:
        """Publish the lease and return whether it is held; if so, remove earlier ones and have a thread renew it."""
        is_new = self.store.publish(
            path_of(self.number), seal(this_process() | {"token": self._token, "at": self.store.root})
        )
        # [!] The number may have been used and removed since it was read: only the last number holds the lease.
        if not is_new or not self.is_held():
            del _own_leases[self._token]
            return False
        self.store.remove(name for name in self.store.names(FOLDER) if 0 < number_of(name, ENDINGS) < self.number)
        threading.Thread(target=self._renew, name="watersmeet-lease", daemon=True).start()
        return True

    def check(self) -> None:
        """Check that no other run has taken over the lease; to be called before anything is published.

        Raises:
            LeaseLost: If another run has taken it, or its files are gone.
            QueryStopped: If the lease has been released, as the query was stopped.
        """
        if loss := self.loss():
            raise loss
        if self._over.is_set():
            raise QueryStopped("The query was stopped in the middle of a batch; the next start repeats that batch.")

    def is_held(self) -> bool:
        """Return whether this run still holds the lease."""
        return not self._over.is_set() and self.loss() is None

    def loss(self) -> LeaseLost | None:
        """Return how the lease was lost before it was released; None if it was not."""
        if not self._over.is_set():
            loss = self._find_loss()
            if not self._over.is_set():  # [!] released meanwhile: a later lease is lawful
                self._loss = loss
        return self._loss

    def _find_loss(self) -> LeaseLost | None:
        """Return how the lease was lost, by the files of leases in the store; None if it is still held."""
        last = last_number(self.store)
        if last > self.number:
            return LeaseLost(
                f"Another run has taken over the checkpoint at {self.store.root}, since this one did not renew its "
                f"lease for {EXPIRES:g} seconds; this one stops here."
            )
        if last < self.number or not self._is_own():
            return LeaseLost(
                f"The lease of the checkpoint at {self.store.root} is gone: somebody removed or replaced its files "
                "while the query ran. It stops here; start it again if nobody else uses the checkpoint."
            )
        return None

    def _is_own(self) -> bool:
        """Return whether its file is this run's: in a replaced checkpoint, another run may have the number."""
        return holder_of(self.store, self.number).get("token") == self._token

    def end(self) -> None:
        """Release the lease; no effect if it has ended. If the store can't be written to, it expires instead."""
        if not self._over.is_set():
            with suppress(OSError, StateError):
                self.loss()
            self._over.set()
            _own_leases.pop(self._token, None)
            with suppress(OSError, StateError):  # it then expires
                if self._is_own():
                    self.store.publish(path_of(self.number, "ended"), b"")

    def _renew(self) -> None:
        """Renew the lease until it is over; end it once it isn't needed. Runs in a thread of its own.

        [!] If it is lost, nothing else may notice before Spark writes to its part of the checkpoint: a run that wakes
        up between two batches would end the run that has taken over.
        """
        due = 0.0
        while not self._over.wait(POLL_SECONDS):
            if not self._is_still_needed():
                self.end()
            elif time.monotonic() >= due:
                due = time.monotonic() + RENEW_SECONDS
                with suppress(OSError, StateError):  # such as a full disk; if that lasts, the lease expires
                    if loss := self.loss():
                        self._stop(loss)
                    else:
                        self.store.overwrite(path_of(self.number, "renewed"), uuid.uuid4().hex.encode())

    def _stop(self, loss: LeaseLost) -> None:
        try:
            self.stop(loss)
        except Exception:  # Spark itself is gone, or it is tried again
            logging.getLogger("watersmeet").warning("%s", loss)

    def _is_still_needed(self) -> bool:
        try:
            return self.is_needed()
        except Exception:  # Spark itself is gone
            return False


_own_leases: dict[str, Lease] = {}
"""The leases that this process holds or is about to take, by token."""


def take(store: Store) -> Lease:
    """Take the lease of a store, and renew it from now on; may watch the lease of another run for a while first.

    Raises:
        StateError: If another run holds it; nothing is changed then.
    """
    for _ in range(TRIES):
        number = last_number(store)
        if number and not _is_free(store, number):
            raise StateError(
                f"The checkpoint at {store.root} is in use by {_describe_holder(store, number)}; stop that query "
                "first, or use another checkpointLocation."
            )
        # [!] Fences count generations by this number: it never starts again, even if the files of leases were removed.
        lease = Lease(store, max(number, last_fence(store).number) + 1)
        if lease.take():
            return lease
    raise StateError(
        f"The checkpoint at {store.root} can't be leased: {FOLDER}/ contains something other than files; remove it."
    )


def _is_free(store: Store, number: int) -> bool:
    """Return whether a lease may be taken over; watches it for up to `EXPIRES` seconds if that is not known at once."""
    renewal, since = store.read(path_of(number, "renewed")), time.monotonic()
    while True:
        holder = holder_of(store, number)
        if store.read(path_of(number, "ended")) is not None or _is_gone(store, holder):
            return True
        if store.read(path_of(number, "renewed")) != renewal or _is_here(holder):
            return False
        if time.monotonic() - since > EXPIRES:
            return True
        time.sleep(POLL_SECONDS)


def _is_gone(store: Store, holder: Mapping[str, Any]) -> bool:
    """Return whether a lease's holder is known to be gone; False if that can't be seen from here."""
    if holder and not is_same_folder(holder["at"], store.root):  # it came with a copy of the checkpoint
        return True
    if _is_here(holder):
        lease = _own_leases.get(holder["token"])
        if lease is None:
            return True
        if lease._is_still_needed():
            return False
        lease.end()  # [!] before the next is taken: else its thread takes that for a loss
        return True
    return is_running(holder) is False


def _is_here(holder: Mapping[str, Any]) -> bool:
    """Return whether a lease's holder is this process."""
    return host_id() is not None and this_process().items() <= holder.items()


def _describe_holder(store: Store, number: int) -> str:
    holder = holder_of(store, number)
    if _is_here(holder):
        return "another query of this program"
    return f"process {holder['pid']} on {holder['name']}" if holder else "another process"
