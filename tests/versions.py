"""What the tests ask of Spark that older versions lack."""

from collections.abc import Iterable

from watersmeet.spark.run.versions import SPARK

LATEST = (4, 3)
SINCE = {"jaro_winkler_similarity": (4, 3), "vector_": (4, 2), "time_bucket": (4, 3)}
"""The version that functions came with, by how their names begin."""


def is_there(text: str) -> bool:
    """Tell whether Spark has the functions that a text calls."""
    return all(since <= SPARK for name, since in SINCE.items() if name in text)


def there(texts: Iterable[str]) -> list[str]:
    """Return the texts whose functions Spark has."""
    return [text for text in texts if is_there(text)]
