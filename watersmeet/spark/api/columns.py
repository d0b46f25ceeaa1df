"""Columns as promises name them: found as Spark finds names, and fit to be compared."""

from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa
from pyspark.sql import types as T

from watersmeet.errors import DefinitionError
from watersmeet.metadata.spans import exact_type
from watersmeet.predicate.scope import same_name
from watersmeet.spark.run.frames import arrow_type, is_odd
from watersmeet.spark.sql.hoist import collation


@dataclass(frozen=True)
class Columns:
    """The columns of a stream, or of a frame of punctuations.

    Attributes:
        owner: Whose they are, for people.
        kind: The columns.
    """

    owner: str
    kind: T.StructType

    def at(self, what: object, name: str) -> int:
        """Return the position of a column.

        Args:
            what: What names it, for people.
            name: Its name.

        Raises:
            DefinitionError: If there is none, or more than one.
        """
        names = self.kind.names
        found = [at for at, known in enumerate(names) if same_name(known, name)]
        if len(found) > 1:
            alike = " and ".join(names[at] for at in found)
            raise DefinitionError(f"{self.owner}, {what}: it has two columns called {alike}; rename one.")
        if not found:
            close = get_close_matches(name, names, n=3) or names
            raise DefinitionError(f"{self.owner}, {what}: there is no column '{name}'; choose from {', '.join(close)}.")
        return found[0]

    def type_of(self, at: int) -> T.DataType:
        """Return a column's type."""
        return self.kind.fields[at].dataType

    def comparable(self, what: object, name: str) -> int:
        """Return the position of a column whose values can be compared exactly.

        Raises:
            DefinitionError: If they can't.
        """
        at = self.at(what, name)
        kind = self.type_of(at)
        if collation(kind):
            raise DefinitionError(
                f"{self.owner}, {what}: '{name}' is of type {kind.simpleString()}; only text that is compared byte by "
                "byte (UTF8_BINARY) can be promised: cast the column to string."
            )
        if is_odd(kind) or exact_type(compared_as(kind)) is None:
            raise DefinitionError(
                f"{self.owner}, {what}: '{name}' is of type {kind.simpleString()}, whose values can't be promised; "
                "booleans, numbers, texts, binaries, dates and timestamps can."
            )
        return at


def compared_as(kind: T.DataType) -> pa.DataType:
    """Return a type in Arrow's terms; null for those whose values have parts."""
    known = not isinstance(kind, T.ArrayType | T.MapType | T.StructType | T.VariantType)
    return arrow_type(kind) if known else pa.null()
