"""What a strategy writes down for its next batch: a typed record, and its way to JSON and back."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from watersmeet.state.manifest.view import StoredNotes


@dataclass(frozen=True, slots=True)
class Notes(ABC):
    """Notes of a strategy: a frozen dataclass whose fields are numbers, text, and tuples or mappings of them.

    Owners belong to chunks, and routes are found from the owners: a strategy without its notes may keep more copies or
    move more chunks than it had to, but loses no result. So notes that can't be read are as good as none.
    """

    VERSION: ClassVar[int] = 1
    """Of the fields and what they mean; another number makes all notes written before unreadable."""

    def kept(self) -> StoredNotes:
        """Return the notes as the manifest holds them."""
        return StoredNotes(
            type(self).__name__, {each.name: getattr(self, each.name) for each in fields(self)}, self.VERSION
        )

    @classmethod
    def read(cls, kept: StoredNotes) -> Self | None:
        """Return the notes that were kept; None if there are none, or they are of another strategy or version."""
        if (kept.by, kept.version) != (cls.__name__, cls.VERSION):
            return None
        try:
            return cls.from_json(kept.notes)
        except (KeyError, TypeError, ValueError):
            return None

    @classmethod
    @abstractmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the notes from their fields as JSON gives them back: tuples are lists there."""
