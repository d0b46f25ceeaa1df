"""Who enacts the protocol: hands events to it, and does what it says."""

from abc import ABC, abstractmethod

from watersmeet.batch.fuse import RESULTS
from watersmeet.errors import StateError
from watersmeet.metadata.constraint_state import MARKS
from watersmeet.runtime.protocol import (
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
"""The folders of a store that a run may leave files in which nobody needs."""


class Runtime(ABC):
    """Enacts what the protocol says; what concerns the store alone is done here."""

    store: Store

    def offer(self, protocol: Protocol, event: StateLoaded | BatchOffered | QuietPeriod) -> None:
        """Run one batch or round, from its offer to its delivery; or finish what an earlier run left of one."""
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
        """Do what an action says; return the event that it leads to."""
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
        """Hand the results of a batch over."""

    # -- whose the store is

    def check_lease(self) -> None:
        """Raise a StateError if the store is no longer this run's; one that shares it with no other keeps it."""
        return None

    def take_over(self, action: TakeOver) -> None:
        """Fence off the runs before; an intent of theirs is written anew, before the fence makes it void."""
        if action.round is not None:
            rounds.intend(self.store, action.round, action.fence.generation)
        action.fence.publish(self.store)
        self.check_lease()

    # -- what concerns the store

    def commit(self, action: Commit) -> manifests.Manifest | None:
        """Write a manifest; return None, changing nothing, if its batch has one or the store is another run's.

        Raises:
            StateError: If the store became another run's meanwhile. [!] Whether the manifest counts is then for that
                run to say: nothing may be delivered, and nothing taken back.
        """
        try:
            self.check_lease()
        except StateError:
            return None
        history.keep(self.store, action.manifest.batch, action.history)
        self.store.sync(action.manifest.files - action.before.files)
        manifest = manifests.publish(self.store, action.manifest, action.before, action.generation)
        self.check_lease()
        return manifest

    def _doubt(self, action: Action, error: BaseException) -> StateError | None:
        """Return that it is not known whether a batch is committed, if an error leaves that open.

        [!] If the batch were tried again, it would take its own manifest for another run's, and its results back.
        """
        if not isinstance(action, Commit) or isinstance(error, StateError) or not self._may_be_written(action):
            return None
        return StateError(
            f"Batch {action.manifest.batch} may be committed at {self.store.root}, which can't be told now "
            f"({type(error).__name__}: {error}); start the query again, which finds out."
        )

    def _may_be_written(self, action: Commit) -> bool:
        """Tell whether a manifest is there, or that can't be seen."""
        try:
            return self.store.read(manifests.path_of(action.manifest.batch, action.generation)) is not None
        except Exception:
            return True

    def intend(self, action: RecordIntent) -> None:
        """Write down what a round is about to do."""
        self.check_lease()
        rounds.intend(self.store, action.round, action.generation)

    def sweep(self, action: Sweep) -> None:
        """Remove what earlier runs left."""
        names = [name for folder in FOLDERS for name in self.store.names(folder) if name not in action.needed]
        self.check_lease()  # [!] after the look: a later run's files are not among these
        self.store.remove(names)

    # -- what concerns the sink

    def deliver(self, action: Deliver) -> None:
        """Let files appear; who publishes without deliveries has none."""
        return None

    def withdraw(self, action: Withdraw) -> None:
        """Remove from the sink what earlier runs left; where nobody else writes to it there is nothing."""
        return None

    def retract(self, action: Retract) -> None:
        """Remove from the sink what this run has written; where nobody else commits it comes to nothing."""
        return None

    def warn(self, action: Warn) -> None:
        """Tell people something; `progress` says it anyway."""
        return None
