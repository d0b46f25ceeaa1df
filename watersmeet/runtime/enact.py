"""The base class of runtimes: they pass events to the commit protocol and perform its actions."""

from abc import ABC, abstractmethod

from watersmeet.batch.fuse import RESULTS
from watersmeet.errors import StateError
from watersmeet.metadata.constraints import MARKS
from watersmeet.runtime.commit_protocol import (
    Action,
    BatchOffered,
    Commit,
    Deliver,
    Event,
    FilesDelivered,
    JobsFinished,
    ManifestWritten,
    Protocol,
    Publish,
    QuietPeriod,
    RecordIntent,
    Remove,
    ResultsPublished,
    Retract,
    RunJobs,
    StateLoaded,
    Sweep,
    TakeOver,
    Warn,
    Withdraw,
)
from watersmeet.state.chunks.chunk import CHUNKS
from watersmeet.state.manifest import generations, history, rounds
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.store.store import Store

FOLDERS = (CHUNKS, MARKS, RESULTS, "sides", manifests.FOLDER, history.FOLDER, rounds.FOLDER, generations.FENCES)
"""The folders of a store in which an interrupted run may leave unneeded files."""


class Runtime(ABC):
    """Performs the actions of the commit protocol; those that only affect the store are implemented here."""

    store: Store

    def offer(self, protocol: Protocol, event: StateLoaded | BatchOffered | QuietPeriod) -> None:
        """Run one batch or round from its offer to its delivery, or finish one that an earlier run left unfinished.

        Any error of an action is raised; if it leaves open whether the batch is committed, the protocol then refuses
        all further events.
        """
        events: list[Event] = [event]
        while events:
            for action in protocol.handle(events.pop(0)):
                try:
                    answer = self.enact(action)
                except BaseException as error:  # also Ctrl-C, and errors of clients of remote stores
                    protocol.in_doubt = self._doubt(action, error)
                    raise
                events += [] if answer is None else [answer]

    def enact(self, action: Action) -> Event | None:
        """Perform an action; return the event that answers it, if any."""
        match action:
            case TakeOver():
                self.take_over(action)
            case RecordIntent():
                self.intend(action)
            case RunJobs():
                return self.run(action)
            case Publish():
                return self.publish(action)
            case Commit():
                return ManifestWritten(self.commit(action))
            case Deliver():
                self.deliver(action)
                return FilesDelivered(action.batch)
            case Sweep():
                self.sweep(action)
            case Remove():
                self.check_lease()  # [!] in an older copy that was restored meanwhile, these files may be the state
                self.store.remove(action.files)
            case Withdraw():
                self.withdraw(action)
            case Retract():
                self.retract(action)
            case Warn():
                self.warn(action)
        return None

    @abstractmethod
    def run(self, action: RunJobs) -> JobsFinished:
        """Run the jobs of a batch."""

    @abstractmethod
    def publish(self, action: Publish) -> ResultsPublished:
        """Hand a batch's results to the sink, or prepare their delivery."""

    # -- the lease of the store

    def check_lease(self) -> None:
        """Raise a StateError if another run has taken over the store; a runtime without leases never loses it."""
        return None

    def take_over(self, action: TakeOver) -> None:
        """Fence off earlier runs, after writing the intent of a round that they began again: the fence voids theirs.

        Raises:
            StateError: If another run has taken over; its files count then, not this run's.
        """
        self.check_lease()
        if action.round is not None:
            rounds.write_intent(self.store, action.round, action.fence.generation)
        action.fence.publish(self.store)
        try:
            self.check_lease()
        except StateError:  # [!] in an older copy that was restored meanwhile, no later fence may ever come
            self.store.remove([action.fence.path])
            raise

    # -- actions on the store

    def commit(self, action: Commit) -> manifests.Manifest | None:
        """Write a manifest and return it; None, writing none, if its batch has one or another run has the store.

        Also writes the block of progress that is due, and makes the state's new files durable.

        Raises:
            StateError: If another run took over the store meanwhile. [!] That run decides whether the manifest counts:
                nothing may be delivered or retracted.
        """
        try:
            self.check_lease()
        except StateError:
            return None
        history.write_block(self.store, action.manifest.batch, action.history)
        self.store.sync(action.manifest.files - action.before.files)
        manifest = manifests.publish(self.store, action.manifest, action.before, action.generation)
        self.check_lease()
        return manifest

    def _doubt(self, action: Action, error: BaseException) -> StateError | None:
        """Return the error to raise from now on if an error leaves open whether a batch is committed; else None.

        [!] If the batch were run again, it would take its own manifest for another run's, and retract its results.
        """
        if not isinstance(action, Commit) or isinstance(error, StateError) or not self._may_be_written(action):
            return None
        return StateError(
            f"Batch {action.manifest.batch} may be committed at {self.store.root}, which can't be told now "
            f"({type(error).__name__}: {error}); start the query again, which finds out."
        )

    def _may_be_written(self, action: Commit) -> bool:
        """Tell whether a manifest exists, or can't be ruled out."""
        if self.store.local is None:  # [!] a request without an answer may be carried out later
            return True
        try:
            return self.store.read(manifests.path_of(action.manifest.batch, action.generation)) is not None
        except Exception:
            return True

    def intend(self, action: RecordIntent) -> None:
        """Record what a round is about to do."""
        self.check_lease()
        rounds.write_intent(self.store, action.round, action.generation)

    def sweep(self, action: Sweep) -> None:
        """Remove the unneeded files that earlier runs left in the store; a new lease has removed those of leases."""
        names = [name for folder in FOLDERS for name in self.store.names(folder) if name not in action.keep]
        names += self.store.drafts()  # this run has written its documents
        self.check_lease()  # [!] after listing: the names then contain no file of a later run
        self.store.remove(names)

    # -- actions on the sink

    def deliver(self, action: Deliver) -> None:
        """Move files to their output folders; nothing to do for a runtime that publishes without deliveries."""
        return None

    def withdraw(self, action: Withdraw) -> None:
        """Remove from the sink what earlier runs left; nothing to do if no other run writes to it."""
        return None

    def retract(self, action: Retract) -> None:
        """Remove from the sink what this run has written; never needed if no other run commits."""
        return None

    def warn(self, action: Warn) -> None:
        """Warn the user; `progress` contains the warning anyway."""
        return None
