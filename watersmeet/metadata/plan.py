"""What the plan of a batch says about metadata, and what its tasks report back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from watersmeet.metadata.constraints import ConstraintId, ConstraintStates, MarkFile

_ERAS = 4
"""How many eras a lifetime is divided into: marks are dropped at most one era later than they could be."""


@dataclass(frozen=True, slots=True)
class MarkLifetime:
    """For how long a batch keeps marks, as the watermark advances.

    Attributes:
        remember: The lifetime, in microseconds of the watermark; None if marks are kept for ever.
        watermark: The watermark before the batch; None for minus infinity.
        purges: Whether the batch purges all that the marks allow: none is dropped before it has been used.
    """

    remember: int | None = None
    watermark: int | None = None
    purges: bool = True

    @property
    def dates_marks(self) -> bool:
        """Whether marks are dated in this batch; those made before the first watermark count as made at it."""
        return self.remember is not None and self.watermark is not None

    def date_files(self, files: Sequence[MarkFile], since: int) -> tuple[MarkFile, ...]:
        """Return mark files with an era each; those that have one keep it. Unchanged if marks have no lifetime.

        Args:
            files: The mark files.
            since: The latest time that the watermark must pass before a mark in the undated files takes effect.
        """
        if self.remember is None or self.watermark is None:
            return tuple(files)
        era = max(self.watermark, since) // self._era_length * self._era_length
        return tuple(file._replace(era=era) if file.era is None else file for file in files)

    def select_remembered(self, files: Sequence[MarkFile]) -> tuple[MarkFile, ...]:
        """Return the mark files that are kept after the batch; if it purges, only those whose lifetime isn't over."""
        if self.remember is None or self.watermark is None or not self.purges:
            return tuple(files)
        last = self.watermark - self.remember - self._era_length
        return tuple(file for file in files if file.era is None or file.era > last)

    @property
    def _era_length(self) -> int:
        return max(1, (self.remember or 0) // _ERAS)


UNLIMITED = MarkLifetime()
"""Marks are kept for ever."""


@dataclass(frozen=True)
class MetadataPlan:
    """The state of all constraints before a batch, and what the batch does with them.

    Attributes:
        constraints: The state of each stream's constraints.
        lifetime: For how long their marks are kept.
        purge: Whether tasks look for rows that have become dead.
        propagated: Constraints whose punctuations an outer join inherits.
        inherited: Punctuations that inner joins emit in the same batch, by the constraint they belong to here.
    """

    constraints: ConstraintStates = ()
    lifetime: MarkLifetime = UNLIMITED
    purge: bool = False
    propagated: frozenset[ConstraintId] = frozenset()
    inherited: Mapping[ConstraintId, tuple[MarkFile, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class MetadataReport:
    """What a batch did to constraints; one task reports it for all.

    Attributes:
        constraints: Their state after the batch; empty from every other task.
        sides: Files for side outputs: (kind of rows, stream, file).
        counts: How many rows of each kind these are.
        propagated: Punctuations for an outer join, by the constraint they come from.
        samples: Some of the orphans.
    """

    constraints: ConstraintStates = ()
    sides: list[tuple[str, int, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    propagated: list[tuple[ConstraintId, MarkFile]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
