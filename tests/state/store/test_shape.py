"""The shape of documents: each kind of type, and where a misfit is."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import pyarrow as pa
import pytest

from watersmeet.errors import StateError
from watersmeet.state.store.file_format import consistent, digest, seal, unseal
from watersmeet.state.store.shape import Misfit, Rule, check, check_fields


class Pair(NamedTuple):
    one: int
    two: str = ""


@dataclass(frozen=True)
class Thing:
    name: str
    pairs: tuple[Pair, ...] = ()


class Whole(TypedDict):
    at: int
    parts: NotRequired[list[Thing]]
    inner: NotRequired["dict[str, Whole]"]


Small = Annotated[int, Rule(lambda number: number < 10, "a number below 10")]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, int), (-(2**63), int), (1, float), (1.5, float), (float("inf"), float), (True, bool), ("x", str),
        (None, None),
        (None, int | None), (1, int | None), ("x", int | str), ("a", Literal["a", "b"]), ([1, 2], list[int]),
        ([1, "x"], tuple[int, str]), ((), tuple[int, ...]), ({"x": 1}, dict[str, int]), ([[1, "x"]], dict[int, str]),
        ([1, "x"], Pair), ([1], Pair), ({"one": 1}, Pair), (Pair(1), Pair), (["x", [[1]]], Thing), (Thing("x"), Thing),
        ({"at": 1, "parts": [{"name": "x"}], "inner": {"x": {"at": 2}}, "more": object()}, Whole), (9, Small),
        (object(), Any),
    ],
)  # fmt: skip
def test_what_fits(value: Any, kind: Any) -> None:
    check(value, kind)


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        (True, int, "it is True, and a whole number was expected"),
        (1.0, int, "it is 1.0, and a whole number was expected"),
        (2**64, int, "it is 18446744073709551616, and a whole number was expected"),
        ("1", float, "it is '1', and a number was expected"),
        (0, bool, "it is 0, and true or false was expected"),
        (b"x", str, "it is b'x', and text was expected"),
        (0, None, "it is 0, and null was expected"),
        ("x", int | None, "it is 'x', and a whole number or null was expected"),
        ("c", Literal["a", "b"], "it is 'c', and 'a' or 'b' was expected"),
        ({}, list[int], "it is {}, and a list was expected"),
        ([1, "x"], list[int], "[1] is 'x', and a whole number was expected"),
        ([1], tuple[int, str], "it is [1], and a list of 2 values was expected"),
        ([1, 2], tuple[int, str], "[1] is 2, and text was expected"),
        ([], dict[str, int], "it is [], and an object was expected"),
        ({"x": None}, dict[str, int], "['x'] is None, and a whole number was expected"),
        ({"x": 1}, dict[Annotated[str, Rule(str.isdigit, "digits")], int], "['x'] is 'x', and digits was expected"),
        (["x"], Pair, "one is 'x', and a whole number was expected"),
        ([1, "", 2], Pair, "it is [1, '', 2], and a list of 2 values was expected"),
        (["x", [[1], ["x"]]], Thing, "pairs[1].one is 'x', and a whole number was expected"),
        ({"at": 1, "parts": [{}]}, Whole, "parts[0] is {}, and an object with name was expected"),
        ({"at": 1, "inner": {"x": {}}}, Whole, "inner['x'] is {}, and an object with at was expected"),
        (10, Small, "it is 10, and a number below 10 was expected"),
        (1, Thing, "it is 1, and a list of 2 values was expected"),
        (1, bytes, "it is 1, and a value of type bytes was expected"),
    ],
)  # fmt: skip
def test_what_does_not(value: Any, kind: Any, says: str) -> None:
    with pytest.raises(Misfit) as error:
        check(value, kind)
    assert str(error.value) == says


def test_fields_of_a_dataclass() -> None:
    check_fields({"name": "x", "pairs": (Pair(1),)}, Thing)
    with pytest.raises(Misfit, match="an object with name was expected"):
        check_fields({}, Thing)


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"9" * 5_000, b'"\\ud800"', b"\xff", b'["x"]'])
def test_a_document_that_is_sealed_and_no_sense(text: bytes) -> None:
    sealed = seal(1).partition(b" ")[0] + b" 9 " + digest(text).encode() + b"\n" + text
    with pytest.raises(StateError, match=r"^The page is not as Watersmeet writes it: .*; restore it or start a new"):
        unseal(sealed, "The page", list[int])


def test_text_in_pairs_of_halves() -> None:
    assert unseal(seal(["\N{GRINNING FACE}"]), "", list[str]) == ["\N{GRINNING FACE}"]


def test_what_does_not_fit_together_is_one_sentence() -> None:
    says = r"^The documents .* at /x do not fit together \(KeyError: 'a'\)"
    with pytest.raises(StateError, match=says) as error, consistent("/x"):
        raise KeyError("a")
    assert isinstance(error.value.__cause__, KeyError)
    for kind in (StateError, FileNotFoundError, NameError):
        with pytest.raises(kind, match="as it is"), consistent("/x"):
            raise kind("as it is")


def test_a_misfit_is_one_line() -> None:
    """Objects are built from a document's inner parts before its outer ones are checked; schemas show as two lines."""
    with pytest.raises(Misfit) as raised:
        check({"a": pa.schema([("id", pa.int64()), ("x", pa.int64())])}, Thing)
    assert "id: int64 x: int64" in str(raised.value)
