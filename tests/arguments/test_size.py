"""Sizes as people write them."""

import pytest

from watersmeet.arguments import bytes_of
from watersmeet.errors import DefinitionError


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("10b", 10), ("2k", 2048), (" 512 MB ", 512 << 20), ("1.5GiB", 3 << 29), ("1tb", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "0", "0 MB", "-1", "1 XB", "MB", "1 2", "0.1"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(DefinitionError, match=r"^x: '.*' is not a size of 1 byte or more; write it like '512 MB'"):
        bytes_of(text, "x")
