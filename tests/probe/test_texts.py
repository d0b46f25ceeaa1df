"""Similarities of texts are Spark's, to the last bit."""

import random

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.predicate.model import Column
from watersmeet.predicate.terms import TextFunction
from watersmeet.probe.evaluators import texts
from watersmeet.probe.evaluators.real_comparisons import evaluate_pairs

ALPHABETS = ["ab", "abcdefgh", "aé", "xß日", "a😀😃", "\0a"]


def random_texts(count: int, seed: int, longest: int = 14) -> list[str]:
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        letters = rng.choice(ALPHABETS)
        made.append("".join(rng.choice(letters) for _ in range(rng.randint(0, longest))))
    return made


def jaro_winkler(one: str, two: str) -> float:
    """As Spark writes it, over the units of UTF-16."""
    a, b = (np.frombuffer(text.encode("utf-16-le"), dtype="<u2").tolist() for text in (one, two))
    if not a or not b:
        return 1.0 if a == b else 0.0
    reach = max(0, max(len(a), len(b)) // 2 - 1)
    matched, firsts = [False] * len(b), []
    for i, unit in enumerate(a):
        for j in range(max(0, i - reach), min(i + reach + 1, len(b))):
            if not matched[j] and b[j] == unit:
                matched[j] = True
                firsts.append(unit)
                break
    count = len(firsts)
    if count == 0:
        return 0.0
    seconds = [unit for unit, is_matched in zip(b, matched, strict=True) if is_matched]
    transposed = sum(x != y for x, y in zip(firsts, seconds, strict=True))
    jaro = (count / len(a) + count / len(b) + (count - transposed / 2.0) / count) / 3.0
    prefix = 0
    while prefix < min(4, len(a), len(b)) and a[prefix] == b[prefix]:
        prefix += 1
    return float(jaro + prefix * 0.1 * (1.0 - jaro))


def levenshtein(one: str, two: str) -> int:
    row = list(range(len(two) + 1))
    for i, left in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, right in enumerate(two, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
    return row[-1]


@pytest.mark.parametrize("seed", range(4))
def test_they_are_what_the_definition_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "BLOCK", 300)
    lefts, rights = random_texts(40, seed), random_texts(40, seed + 100)
    left_at, right_at = np.repeat(np.arange(40), 40), np.tile(np.arange(40), 40)
    pairs = [(lefts[i], rights[j]) for i, j in zip(left_at, right_at, strict=True)]
    arrays = (pa.array(lefts), pa.array(rights), left_at, right_at)
    assert texts.jaro_winkler(*arrays).value.tolist() == [jaro_winkler(*pair) for pair in pairs]
    distances = [levenshtein(*pair) for pair in pairs]
    assert texts.levenshtein(*arrays).value.tolist() == distances
    limited = [-1 if distance > 3 else distance for distance in distances]
    assert texts.levenshtein(*arrays, limit=3).value.tolist() == limited


@pytest.mark.parametrize("function", ["jaro_winkler_similarity", "levenshtein"])
def test_null_is_null_and_long_texts_are_left_open(function: str) -> None:
    lefts, rights = pa.array(["a", None, "x" * 65]), pa.array(["ab", "x" * 65, None])
    left_at, right_at = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)
    ball = evaluate_pairs(TextFunction(function, Column(0, 0), Column(1, 0)), lefts, rights, left_at, right_at)
    null = [False, False, True] + [True] * 3 + [False, False, True]
    assert (~ball.valid).tolist() == null
    open_ = [False, True, False] + [False] * 3 + [True, True, False]
    assert np.isinf(ball.radius).tolist() == open_


def test_no_texts_and_no_pairs() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert len(texts.jaro_winkler(pa.array([], pa.string()), pa.array(["a"]), nothing, nothing).value) == 0
    empty = texts.levenshtein(pa.array(["", None]), pa.array([""]), np.array([0, 1]), np.array([0, 0]))
    assert (empty.value.tolist(), empty.valid.tolist()) == ([0, 0], [True, False])


@pytest.mark.parametrize("function", ["jaro_winkler_similarity", "levenshtein"])
def test_a_side_of_bytes_meets_one_of_wider_units(function: str) -> None:
    """[!] How wide the units of a side are depends on what else is in the block: the answer must not."""
    left, right = ["anne", "it's", "Ann", ""], ["Ann", "Σίσυφος", "it's", "Straße", ""]
    term = TextFunction(function, Column(0, 0), Column(1, 0))
    at, of = np.divmod(np.arange(len(left) * len(right)), len(right))
    together = evaluate_pairs(term, pa.array(left), pa.array(right), at, of)
    singles = [
        evaluate_pairs(term, pa.array([one]), pa.array([two]), np.array([0]), np.array([0])).value[0]
        for one in left
        for two in right
    ]
    assert together.value.tolist() == singles
