"""A text with some of its spans written otherwise, and where things in it stand in the text as it was."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A text and what stands in place of its spans, which don't overlap.

    >>> made = Rewritten("x + a.*", {(0, 1): "b.x", (4, 7): "a.y, a.z"})
    >>> made.result
    'b.x + a.y, a.z'
    >>> made.back(6, 9), made.back(4, 5)
    ((4, 7), (2, 3))
    """

    text: str
    spans: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @property
    def result(self) -> str:
        """The text, rewritten."""
        parts, at = [], 0
        for (start, end), instead in sorted(self.spans.items()):
            parts += [self.text[at:start], instead]
            at = end
        return "".join([*parts, self.text[at:]])

    def back(self, start: int, end: int) -> tuple[int, int]:
        """Return where a span of the rewritten text stands in the text: a span that was replaced counts as a whole."""
        return self._back(start, False), self._back(end, True)

    def _back(self, place: int, is_end: bool) -> int:
        shift = 0
        for (start, end), instead in sorted(self.spans.items()):
            first, last = start + shift, start + shift + len(instead)
            if place <= first and not (place == first and not is_end):
                break
            if place < last or (place == last and is_end):
                return end if is_end else start
            shift += len(instead) - (end - start)
        return place - shift
