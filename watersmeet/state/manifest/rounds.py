"""What a round is about to do, written down before it does anything: it is finished before any other batch.

[!] A sink may have seen some of a round that was cut; whatever comes under its number next must be the same. Which
intent counts, where several runs have written some: see `generations`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from watersmeet.state.manifest import documents, generations
from watersmeet.state.manifest.choice import Choice
from watersmeet.state.store.sealed import seal, unseal
from watersmeet.state.store.store import Store

FOLDER = "rounds"


@dataclass(frozen=True, slots=True)
class Round:
    """A round that is to be run.

    Attributes:
        batch: Its number among the batches.
        choices: What each join pays, by path.
        final: Whether it closes everything for good.
    """

    batch: int
    choices: Mapping[str, Choice]
    final: bool = False


def path_of(batch: int, generation: int = 0) -> str:
    """Return where the intent of a round lies that was written under a lease."""
    return generations.path_of(FOLDER, batch, generation)


def intend(store: Store, round: Round, generation: int = 0) -> None:
    """Write down what a round is about to do."""
    choices = {path: choice.to_json() for path, choice in round.choices.items()}
    body = {"batch": round.batch, "choices": choices, "final": round.final}
    store.publish(path_of(round.batch, generation), seal(body))


def intended(store: Store, batch: int) -> Round | None:
    """Return the round of a number that was begun, if there is one.

    Raises:
        StateError: If its file is damaged.
    """
    path = generations.standing(store, FOLDER).get(batch)
    data = store.read(path) if path else None
    if not data:
        return None
    body = unseal(data, f"What round {batch} under {store.root} pays", documents.Round)
    choices = {path: Choice.from_json(plain) for path, plain in body["choices"].items()}
    return Round(batch, choices, body.get("final", False))
