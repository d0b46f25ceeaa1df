"""Whatever users give by mistake is told in a sentence; NumPy's numbers will do wherever Python's do."""

import inspect
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import watersmeet
from watersmeet.adapt.forecast import Settings
from watersmeet.adapt.pricing import NAMES
from watersmeet.arguments import suggest, to_python
from watersmeet.ordering import ordering

wm: Any = watersmeet
"""Untyped: what type checkers would find is tested as well."""
ODD = [
    None, 5, 0, -1, True, float("nan"), float("inf"), 1.5, "", "x y", [], ["ts"], {}, {"a": 1}, b"ts", object(),
    Path("p"),
    np.int64(3), np.int64(-3), np.float64(0.5), np.float64("nan"), np.bool_(True), np.str_("ts"), np.array([1, 2]),
    timedelta(seconds=5), timedelta(0), timedelta(-1), np.timedelta64(5, "s"), Decimal(1), lambda x: x, {5: 5},
]  # fmt: skip
CLASSES: tuple[Callable[..., Any], ...] = (
    wm.PSP, wm.ATR, wm.CTR, wm.DSJ, wm.Hash, wm.Central, wm.Auto, Settings, wm.count, wm.hopping, wm.clustered,
    wm.ordered, wm.foreign_key, wm.between, ordering,
)  # fmt: skip
FIRST: dict[Any, dict[str, Any]] = {
    wm.hopping: {"size": "1 s", "step": "1 s"},
    wm.clustered: {"column": "x"},
    wm.ordered: {"column": "x"},
    wm.foreign_key: {"column": "x", "parent": "b.x"},
    wm.between: {"low": "x", "high": "x"},
    wm.Spill: {"within": "1 second"},
    wm.punctuations: {"flag": "x", "on": "x"},
    wm.predicate: {},
}
CHECKED_BEFORE = [(Settings, "rates"), (Settings, "among"), (Settings, "weights")]
"""`wm.advise` and Auto have looked at them."""
CALLS = [
    (of, name)
    for of in (*CLASSES, wm.Spill, wm.punctuations)
    for name in inspect.signature(of).parameters
    if name
    not in ("rates", *(("among", "weights") if of is Settings else ()))  # `wm.advise` and Auto have seen to them
]


@pytest.mark.parametrize(("of", "name"), CALLS, ids=lambda it: getattr(it, "__name__", it))
def test_an_argument_is_taken_or_refused_in_a_sentence(of: Any, name: str) -> None:
    refused = 0
    for value in ODD:
        try:
            of(**{**FIRST.get(of, {}), name: value})
        except wm.DefinitionError as error:
            refused += 1
            assert str(error).endswith((".", "?")) and "\n" not in str(error)
    assert refused > len(ODD) / 3


def test_keys_and_predicates_are_checked_too() -> None:
    for value in ODD:
        for of in (wm.key, lambda value: wm.predicate(name=value)(lambda x, y: True)):
            if not isinstance(value, str) or not value:
                with pytest.raises(wm.DefinitionError):
                    of(value)


@pytest.mark.parametrize(
    ("made", "same"),
    [
        (wm.PSP(nodes=np.int64(4), step=np.float64(0.5), lengths=[2, np.int8(3)]), wm.PSP(4, step=0.5, lengths=(2, 3))),
        (wm.ATR(2, np.timedelta64(5, "s"), search=np.bool_(True)), wm.ATR(2, timedelta(seconds=5), search=True)),
        (wm.CTR(2, copies=np.int64(2), capacities=np.array([1.0, 2.0])), wm.CTR(2, copies=2, capacities=(1.0, 2.0))),
        (wm.DSJ(2, slices=np.int64(3), weights=[1, 1, 0]), wm.DSJ(2, slices=3, weights=(1, 1, 0))),
        (wm.Auto(max_nodes=np.int64(3), among=["PSP"], interval=np.int64(2)), wm.Auto(3, among=("PSP",), interval=2)),
        (wm.Spill(memory=np.int64(9), partitions=np.int64(4)), wm.Spill(memory=9, partitions=4)),
        (wm.count(np.int64(5)), wm.count(5)),
        (wm.hopping(np.timedelta64(6, "s"), "2 s"), wm.hopping("6 s", "2 s")),
        (wm.ordered("x", np.float32(2.0), np.bool_(True)), wm.ordered("x", 2.0, True)),
    ],
    ids=lambda it: type(it).__name__,
)  # fmt: skip
def test_numbers_of_numpy_are_numbers(made: Any, same: Any) -> None:
    assert made == same and repr(made) == repr(same)


POLICIES = "the policies are 'random', 'local', 'global', 'synchronized', 'semantic', 'punctuated'."
WEIGHTS = "give three numbers, for CPU, memory and network, not all 0."
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "Central": (lambda: wm.Central(4), "Central(nodes=4): Central runs on one node; use PSP for more."),
    "smooth": (lambda: wm.PSP(2, smooth="no"), "smooth='no': it is True or False."),
    "step": (lambda: wm.PSP(2, step="x"), "step='x': give a part of a node's share, above 0 and at most 1."),
    "weights": (lambda: wm.DSJ(2, weights=5), f"weights=5: {WEIGHTS}"),
    "NaN": (lambda: wm.DSJ(2, weights=(1, 1, float("nan"))), f"weights=(1, 1, nan): {WEIGHTS}"),
    "capacities": (
        lambda: wm.ATR(2, capacities=(1, 0)),
        "capacities=(1, 0): give one number above 0 for each of the 2 nodes.",
    ),
    "memory": (lambda: wm.DSJ(2, memory=0), "memory is 0: give a number above 0."),
    "among": (lambda: wm.Auto(among=5), f"among=5: name some of {', '.join(NAMES)}, as a tuple."),
    "policy": (
        lambda: wm.Spill(within="1 s", policy="locale"),
        f"Spill(policy='locale'): {POLICIES} Did you mean 'local'?",
    ),
    "no policy": (lambda: wm.Spill(within="1 s", policy=None), f"Spill(policy=None): {POLICIES}"),
    "weight": (
        lambda: wm.Spill(within="1 s", policy="semantic", weight=5),
        "Spill(weight=5): name a column, such as weight='a.priority'.",
    ),
    "quotas": (
        lambda: wm.Spill(within="1 s", policy="punctuated", quotas=5),
        "Spill(quotas=5): give a dict such as {'auctions': 100}.",
    ),
    "size": (
        lambda: wm.Spill(memory=1.5),
        "Spill(memory): 1.5 is not a size of 1 byte or more; write it like '512 MB' or '2 GB'.",
    ),
    "effect": (
        lambda: wm.punctuations(flag="x", on="x", effect=""),
        "wm.punctuations(flag='x'): effect='' is unknown; use one of batch, watermark.",
    ),
    "order": (
        lambda: ordering("histogramm"),
        "order='histogramm' is unknown; use one of given, selectivity, histogram. Did you mean 'histogram'?",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_said(what: str) -> None:
    make, sentence = REFUSED[what]
    with pytest.raises(wm.DefinitionError) as caught:
        make()
    assert str(caught.value) == sentence


def test_what_was_meant() -> None:
    assert suggest("checkpointlocatoin", ("checkpointLocation", "path")) == " Did you mean 'checkpointLocation'?"
    assert suggest("compression", ("checkpointLocation", "path")) == suggest(None, ("path",)) == ""
    assert to_python([np.int64(1), [np.bool_(False)]]) == (1, (False,))
