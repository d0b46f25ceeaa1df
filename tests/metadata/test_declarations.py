"""Declarations by name: what users may declare, and the messages if they declare something else."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import watersmeet as wm
from watersmeet.metadata.declarations import (
    Between,
    ClusteringDeclaration,
    ForeignKeyDeclaration,
    KeyDeclaration,
    OrderDeclaration,
    Punctuations,
)


def test_what_is_said() -> None:
    assert wm.key("id", "odd name") == KeyDeclaration(("id", "odd name"))
    assert wm.clustered("zone") == ClusteringDeclaration("zone", 0)
    assert wm.clustered("zone", slack=2) == ClusteringDeclaration("zone", 2)
    assert wm.ordered("seq") == OrderDeclaration("seq", 0, False)
    assert wm.ordered("seq", Decimal("1.5"), falling=True) == OrderDeclaration("seq", Decimal("1.5"), True)
    assert wm.ordered("at", "1 minute") == wm.ordered("at", timedelta(seconds=60))
    assert wm.foreign_key("auction", "auctions.odd.name") == ForeignKeyDeclaration("auction", "auctions.odd.name")


@pytest.mark.parametrize(
    ("on", "fields"),
    [
        ("a", (("a", Between("a", "a")),)),
        (["a", "b"], (("a", Between("a", "a")), ("b", Between("b", "b")))),
        ({"a": "x"}, (("a", Between("x", "x")),)),
        ({"a": wm.between("lo", "hi"), "b": "b"}, (("a", Between("lo", "hi")), ("b", Between("b", "b")))),
    ],
)
def test_what_punctuations_speak_of(on: Any, fields: Any) -> None:
    assert wm.punctuations(flag="end", on=on) == Punctuations(fields, "batch", flag="end")


def test_a_frame_takes_effect_by_the_watermark_unless_told_otherwise() -> None:
    frame = object()
    assert wm.punctuations(frame=frame, on="a", time="ts").effect == "watermark"
    assert wm.punctuations(frame=frame, on="a", time="ts", effect="batch").effect == "batch"
    assert wm.punctuations(flag="end", on="a", effect="watermark").effect == "watermark"


NO_NAME = "is not the name of a column, such as 'id'"
AMOUNT = "must be zero or more, and finite"
LOOSE: Any = wm
"""The same functions, for arguments that no type checker lets pass."""


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (lambda: wm.key(), r"wm.key\(\) names no column; give one or more, such as wm.key\('id'\)"),
        (lambda: LOOSE.key(3), f"wm.key: 3 {NO_NAME}"),
        (lambda: LOOSE.key(["a", "b"]), NO_NAME),
        (lambda: LOOSE.clustered(None), f"wm.clustered: None {NO_NAME}"),
        (lambda: wm.clustered("z", -1), "in batches, a whole number that isn't negative; got -1"),
        (lambda: LOOSE.clustered("z", 1.5), "in batches, a whole number that isn't negative; got 1.5"),
        (lambda: LOOSE.clustered("z", True), "in batches, a whole number that isn't negative; got True"),
        (lambda: wm.ordered(""), NO_NAME),
        (lambda: LOOSE.ordered("x", falling="yes"), "falling is True or False; got 'yes'"),
        (lambda: wm.ordered("x", -5), AMOUNT),
        (lambda: wm.ordered("x", float("nan")), AMOUNT),
        (lambda: wm.ordered("x", float("inf")), AMOUNT),
        (lambda: wm.ordered("x", Decimal("sNaN")), AMOUNT),
        (lambda: wm.ordered("x", 10**400), AMOUNT),
        (lambda: LOOSE.ordered("x", [1]), r"a slack is a number or a duration such as '10 seconds'; got \(1,\)"),
        (lambda: LOOSE.ordered("x", True), "a slack is a number or a duration"),
        (lambda: wm.ordered("x", "a while"), r"slack of wm.ordered\('x'\): 'a while' is not a duration"),
        (lambda: wm.ordered("x", "-1 second"), "is negative"),
        (lambda: wm.ordered("x", timedelta(seconds=-1)), "is negative"),
        (lambda: LOOSE.foreign_key(1, "a.id"), f"wm.foreign_key: 1 {NO_NAME}"),
        (lambda: wm.foreign_key("x", "id"), "the second is another stream's column, such as 'auctions.id'"),
        (lambda: wm.foreign_key("x", "a."), "the second is another stream's column"),
        (lambda: LOOSE.foreign_key("x", 3), "the second is another stream's column"),
        (lambda: LOOSE.between("lo", 3), f"wm.between: 3 {NO_NAME}"),
        (lambda: wm.punctuations(on="a"), "it was given neither"),
        (lambda: wm.punctuations(flag="f", frame=object(), on="a", time="ts"), "not both"),
        (lambda: LOOSE.punctuations(flag=3, on="a"), f"3 {NO_NAME}"),
        (
            lambda: wm.punctuations(flag="f"),
            "names the columns that punctuations match: a name, a list of names, or a dict",
        ),
        (lambda: wm.punctuations(flag="f", on=[]), "names the columns that punctuations match"),
        (lambda: wm.punctuations(flag="f", on={}), "names the columns that punctuations match"),
        (lambda: LOOSE.punctuations(flag="f", on=[1]), NO_NAME),
        (lambda: LOOSE.punctuations(flag="f", on={"a": 1}), r"1 is not the name of a column.*, or wm.between"),
        (lambda: LOOSE.punctuations(flag="f", on="a", effect="soon"), "'soon' is unknown; use one of batch, watermark"),
        (lambda: wm.punctuations(flag="f", on="a", time="ts"), "time='ts' goes with a frame"),
        (lambda: wm.punctuations(frame=object(), on="a"), "give the frame's event-time column, such as time='ts'"),
    ],
)
def test_what_is_refused(declare: Callable[[], object], problem: str) -> None:
    with pytest.raises(wm.DefinitionError, match=problem):
        declare()


def test_slacks_of_other_libraries_are_numbers() -> None:
    three: Any = np.int64(3)
    two: Any = np.int8(2)
    assert wm.ordered("k", slack=three) == wm.ordered("k", slack=3)
    assert wm.clustered("k", slack=two) == wm.clustered("k", slack=2)
