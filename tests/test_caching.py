"""Attributes that are computed once."""

import re
from pathlib import Path
from threading import Barrier, Thread

import watersmeet
from watersmeet.caching import cached_property


class Join:
    """Two attributes that need each other, of an inner join: as definitions of nested joins do."""

    def __init__(self, inner: "Join | None", meeting: Barrier) -> None:
        self._inner, self._meeting, self.computed = inner, meeting, 0

    @cached_property
    def kinds(self) -> str:
        """Kinds."""
        self.computed += 1
        self._meeting.wait(5)
        return f"kinds and {self._inner.types}" if self._inner else "kinds"

    @cached_property
    def types(self) -> str:
        self._meeting.wait(5)
        return f"types and {self._inner.kinds}" if self._inner else "types"


def test_threads_that_need_two_attributes_in_opposite_order_do_not_wait_for_each_other() -> None:
    together, alone = Barrier(2), Barrier(1)
    one, two = (Join(Join(None, alone), together) for _ in range(2))
    threads = [Thread(target=lambda: one.kinds, daemon=True), Thread(target=lambda: two.types, daemon=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert (one.kinds, two.types) == ("kinds and types", "types and kinds")


def test_a_value_is_computed_once_for_each_object() -> None:
    one, two = (Join(None, Barrier(1)) for _ in range(2))
    assert [one.kinds, one.kinds, two.kinds] == ["kinds"] * 3
    assert (one.computed, two.computed) == (1, 1)
    assert Join.__dict__["kinds"].__doc__ == "Kinds."


def test_nothing_uses_the_one_with_a_lock() -> None:
    imports = re.compile(r"from functools import .*cached_property|functools\.cached_property")
    sources = [path for path in Path(watersmeet.__file__).parent.rglob("*.py") if path.name != "caching.py"]
    assert not [path for path in sources if imports.search(path.read_text())]
