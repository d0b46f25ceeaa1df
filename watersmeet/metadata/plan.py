"""What the plan of a batch says of metadata, and what its tasks report of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watersmeet.metadata.constraint_state import MarkFile, Promises
from watersmeet.metadata.mark_files import EVERYTHING, Recall

Number = tuple[int, int]
"""A constraint: the position of its stream, and its own among the stream's constraints."""


@dataclass(frozen=True)
class MetadataPlan:
    """The state of all constraints before a batch, and what the batch does with them.

    Attributes:
        constraints: The state of each stream's constraints.
        recall: How long their marks are kept.
        purge: Whether tasks look for rows that metadata show to be dead.
        propagated: Constraints whose punctuations an outer join inherits.
        inherited: Punctuations that inner joins put out in the same batch, by the constraint they belong to here.
    """

    constraints: Promises = ()
    recall: Recall = EVERYTHING
    purge: bool = False
    propagated: frozenset[Number] = frozenset()
    inherited: Mapping[Number, tuple[MarkFile, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class MetadataReport:
    """What a batch did to constraints; reported by one task for all.

    Attributes:
        constraints: Their state after the batch; empty from every other task.
        sides: Files for side outputs: (kind of rows, stream, file).
        counts: How many rows of each kind these are.
        propagated: Punctuations for an outer join, by the constraint they come from.
        samples: Some of the orphans.
    """

    constraints: Promises = ()
    sides: list[tuple[str, int, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    propagated: list[tuple[Number, MarkFile]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
