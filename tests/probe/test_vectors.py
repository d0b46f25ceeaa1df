"""Functions of vectors: Spark's value lies in every ball, however the pairs are given."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.predicate.model import Column
from watersmeet.predicate.terms import VECTORS, Comparison, Leaf, Sign, VectorFunction
from watersmeet.probe.evaluators.balls import Ball, decide
from watersmeet.probe.evaluators.real_comparisons import evaluate_pairs

FUNCTIONS = sorted(VECTORS)


def term(function: str) -> VectorFunction:
    return VectorFunction(function, Column(0, 0), Column(1, 0))


def spark(function: str, one: Any, two: Any) -> float | None:
    """As Spark computes it: sums of doubles in the given order, the result a float; NaN where it raises."""
    if one is None or two is None:
        return None
    if len(one) != len(two):
        return float("nan")
    if None in one or None in two:
        return None
    if function == "vector_inner_product":
        return float(np.float32(sum(x * y for x, y in zip(one, two, strict=True))))
    if function == "vector_l2_distance":
        return float(np.float32(np.sqrt(sum((x - y) ** 2 for x, y in zip(one, two, strict=True)))))
    length = np.sqrt(sum(x * x for x in one) * sum(y * y for y in two))
    return float(np.float32(sum(x * y for x, y in zip(one, two, strict=True)) / length)) if length else None


def rows(count: int, seed: int, dimension: int = 19) -> list[list[float]]:
    matrix = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    return matrix.tolist()  # type: ignore[no-any-return]


def shapes(lefts: int, rights: int) -> dict[str, tuple[Any, Any]]:
    """Pairs of rows: all, most in order, most in no order, few."""
    every = np.repeat(np.arange(lefts), rights), np.tile(np.arange(rights), lefts)
    rng = np.random.default_rng(7)
    most, fewer = np.sort(rng.permutation(lefts * rights)[: lefts * rights // 2]), rng.permutation(lefts * rights)[:5]
    selections: dict[str, Any] = {"all": slice(None), "most": most, "mixed": rng.permutation(most), "few": fewer}
    return {name: (every[0][at], every[1][at]) for name, at in selections.items()}


def assert_holds(ball: Ball, truth: list[float | None]) -> None:
    value, radius, valid = (np.broadcast_to(part, len(truth)) for part in (ball.value, ball.radius, ball.valid))
    for at, true in enumerate(truth):
        if radius[at] == np.inf:
            continue
        assert valid[at] == (true is not None)
        assert true is None or abs(true - float(value[at])) <= radius[at]


@pytest.mark.parametrize("shape", ["all", "most", "mixed", "few"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_ball_holds_sparks_value(function: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watersmeet.probe.evaluators.vectors.CELLS", 64)
    monkeypatch.setattr("watersmeet.probe.evaluators.vectors.GATHERED", 7)
    lefts, rights = rows(30, 1), rows(20, 2)
    left_at, right_at = shapes(30, 20)[shape]
    kind = pa.list_(pa.float32())
    ball = evaluate_pairs(term(function), pa.array(lefts, kind), pa.array(rights, kind), left_at, right_at)
    truth = [spark(function, lefts[i], rights[j]) for i, j in zip(left_at, right_at, strict=True)]
    assert_holds(ball, truth)
    assert ball.finer is not None
    finer = ball.finer(np.arange(len(left_at)))
    assert_holds(finer, truth)
    assert np.mean(finer.radius == 0) > 0.99


@pytest.mark.parametrize("function", FUNCTIONS)
def test_strange_rows_are_null_or_left_open(function: str) -> None:
    lefts: list[Any] = [
        [1.0, 2.0], [3.0, -4.0], None, [0.0, 0.0], [1.0, None], [1.0], [], [float("nan"), 1.0], [3e38, 3e38],
        [1e-45, 0.0],
    ]  # fmt: skip
    left_at, right_at = (part.ravel() for part in np.indices((10, 10)))
    vectors = pa.array(lefts, pa.list_(pa.float32()))
    single = [None if row is None else [None if x is None else float(np.float32(x)) for x in row] for row in lefts]
    ball = evaluate_pairs(term(function), vectors, vectors.cast(pa.large_list(pa.float32())), left_at, right_at)
    with np.errstate(all="ignore"):
        truth = [spark(function, single[i], single[j]) for i, j in zip(left_at, right_at, strict=True)]
    assert_holds(ball, truth)
    assert ball.finer is not None
    assert_holds(ball.finer(np.arange(100)), truth)
    radius, valid = (np.broadcast_to(part, 100).reshape(10, 10) for part in (ball.radius, ball.valid))
    assert np.isinf(radius).any(axis=1).tolist() == [True] * 2 + [False] + [True] * 7
    assert not valid[2].any()
    assert np.isfinite(radius[:2, :2]).all()


@pytest.mark.parametrize("function", ["vector_inner_product", "vector_l2_distance"])
def test_rows_of_zeros_are_known_at_once(function: str) -> None:
    vectors = pa.array([[0.0, 0.0], [3.0, 4.0]], pa.list_(pa.float32()))
    ball = evaluate_pairs(term(function), vectors, vectors, *(part.ravel() for part in np.indices((2, 2))))
    assert np.isfinite(ball.radius).all()


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "=", "<>"])
def test_nearly_all_is_decided_rightly_even_at_the_border(sign: Sign) -> None:
    lefts, rights = rows(40, 3), rows(40, 4)
    left_at, right_at = shapes(40, 40)["all"]
    kind = pa.list_(pa.float32())
    for function in FUNCTIONS:
        truth = np.array([spark(function, lefts[i], rights[j]) for i, j in zip(left_at, right_at, strict=True)])
        border = float(truth[777])
        ball = evaluate_pairs(term(function), pa.array(lefts, kind), pa.array(rights, kind), left_at, right_at)
        possible, sure = decide(Comparison(sign, term(function), Leaf("", value=border)), {term(function): ball})
        expected = {"<": truth < border, "<=": truth <= border, ">": truth > border, ">=": truth >= border,
                    "=": truth == border, "<>": truth != border}[sign]  # fmt: skip
        assert (possible | ~expected).all()
        assert (expected | ~sure).all()
        assert np.sum(possible != sure) <= 1


def test_only_the_rows_that_pairs_name_are_multiplied() -> None:
    lefts, rights = pa.array(rows(300, 5), pa.list_(pa.float32())), pa.array(rows(300, 6), pa.list_(pa.float32()))
    ball = evaluate_pairs(term("vector_inner_product"), lefts, rights, np.array([7, 200]), np.array([299, 0]))
    assert_holds(
        ball, [spark("vector_inner_product", lefts[i].as_py(), rights[j].as_py()) for i, j in ((7, 299), (200, 0))]
    )


def test_no_pairs() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    empty = pa.array([], pa.list_(pa.float32()))
    assert len(evaluate_pairs(term("vector_l2_distance"), empty, empty, nothing, nothing).value) == 0
