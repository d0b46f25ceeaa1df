"""The rule of tables that are read for each batch: their rows leave when it is over."""

from collections.abc import Mapping

from watersmeet.retention.base import Moment, Retention
from watersmeet.state.chunk import Chunk


class Refreshed(Retention):
    """Lets go all rows of tables that the next batch reads anew."""

    def leaving(self, chunks: Mapping[str, Chunk], now: Moment) -> frozenset[str]:
        """Return the chunks of such tables."""
        read_anew = {at for at, stream in enumerate(now.query.streams) if stream.refreshed}
        return frozenset(key for key, chunk in chunks.items() if chunk.stream in read_anew)
