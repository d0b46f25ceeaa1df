"""The driver's clock."""

import time


class Clock:
    """Tells the time of day as it was at the start plus what has passed since: nobody sets it back within a run."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Return seconds since the epoch."""
        return self._offset + time.monotonic()

    def latest(self) -> float:
        """Return this clock's time or the host's, whichever is later.

        [!] Event times are judged by it. A host whose clock was behind at the start, or that slept meanwhile, is right
        later on, and this clock alone would never be.
        """
        return max(self(), time.time())
