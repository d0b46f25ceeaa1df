"""Which conditions become comparisons of terms, and which are left to others."""

import pyarrow as pa
import pytest

from tests.predicate.pairs import STREAMS, Pairs, rows, table
from watersmeet.predicate.model import Column, Dialect, PythonPredicate
from watersmeet.predicate.parse import parse_where
from watersmeet.predicate.scope import Scope
from watersmeet.predicate.source import Source
from watersmeet.predicate.terms import Comparison, Leaf, MathFunction, Term, TextFunction, VectorFunction, comparison_of
from watersmeet.predicate.translate import Translator

SPARKS = Dialect()


def read_comparisons(text: str, dialect: Dialect = SPARKS) -> tuple[Comparison, ...] | None:
    source = Source(text)
    tree = source.parse()
    assert tree is not None
    predicate = PythonPredicate("tan", lambda x: True)
    return comparison_of(tree, Translator(source, Scope(STREAMS), [predicate], dialect))


def format_term(term: Term) -> str:
    if isinstance(term, MathFunction):
        return f"{term.function}({', '.join(map(format_term, term.arguments))})"
    if isinstance(term, Leaf):
        return term.sql if term.value is None else str(term.value)
    return f"{term.function}[{term.left.name}, {term.right.name}]"


TERMS = [
    ("sin(a.x) < 0.5", ["sin(CAST(s0_0 AS DOUBLE)) < 0.5"]),
    ("NOT (sin(a.x) < 1)", ["sin(CAST(s0_0 AS DOUBLE)) >= 1.0"]),
    ("exp(a.x) BETWEEN 1 AND b.x",
     ["exp(CAST(s0_0 AS DOUBLE)) >= 1.0", "exp(CAST(s0_0 AS DOUBLE)) <= CAST(s1_0 AS DOUBLE)"]),
    ("power(a.i, 2) = cbrt(-b.f)",
     ["pow(CAST(CAST(s0_4 AS DOUBLE) AS DOUBLE), 2.0) = cbrt(CAST(CAST((-s1_5) AS DOUBLE) AS DOUBLE))"]),
    ("1 / a.x + ln(b.x) <> log(2, a.x)",
     ["+(/(1.0, CAST(s0_0 AS DOUBLE)), ln(CAST(s1_0 AS DOUBLE))) <> "
      "/(ln(CAST(s0_0 AS DOUBLE)), ln(2.0))"]),
    ("vector_cosine_similarity(b.v, a.v) > 0.9F", ["vector_cosine_similarity[s1_8, s0_8] > "
      "CAST(CAST(CAST(CAST('0.9' AS DECIMAL(1,1)) AS VARCHAR) AS FLOAT) AS DOUBLE)"]),
    ("1 - vector_inner_product(a.v, b.v) > 0", ["-(1.0, vector_inner_product[s0_8, s1_8]) > 0.0"]),
    ("vector_l2_distance(a.v, b.v) + a.f < 3",
     ["float(+(vector_l2_distance[s0_8, s1_8], CAST(s0_5 AS DOUBLE))) < 3.0"]),
    ("jaro_winkler_similarity(a.s, b.s) >= 0.9", ["jaro_winkler_similarity[s0_7, s1_7] >= 0.9"]),
    ("levenshtein(a.s, b.s) <= 2", ["levenshtein[s0_7, s1_7] <= 2.0"]),
    ("levenshtein(a.s, b.s, 3) / 10 < 0.2", ["/(levenshtein[s0_7, s1_7], 10.0) < 0.2"]),
    ("CAST(sin(a.x) AS FLOAT) > double(cos(b.x))",
     ["float(sin(CAST(s0_0 AS DOUBLE))) > cos(CAST(s1_0 AS DOUBLE))"]),
    ("abs(-cos(a.x)) < 1e-3", ["abs(negative(cos(CAST(s0_0 AS DOUBLE)))) < 0.001"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TERMS)
def test_comparisons(text: str, expected: list[str]) -> None:
    comparisons = read_comparisons(text)
    assert comparisons is not None
    assert [f"{format_term(one.left)} {one.sign} {format_term(one.right)}" for one in comparisons] == expected


@pytest.mark.parametrize(
    "text",
    [
        "a.x < b.x",  # nothing inexact
        "sqrt(a.x) < 2",  # the same everywhere
        "sin(1) < 0.5",  # of no stream
        "sin(a.x) < 0.5 OR a.x > 1",
        "sin(a.x) <=> 0.5",
        "sin(a.x) IS NULL",
        "tan(a.x) < 0.5",  # here a Python predicate
        "sin(a.x) < if(tan(b.x), 0.5D, 1D)",
        "levenshtein(a.s, b.s) < if(tan(a.x), 1, 2)",
        "floor(sin(a.x)) < 1",
        "vector_cosine_similarity(a.v, array(1F)) > 0.5",
        "vector_cosine_similarity(a.v, a.s) > 0.5",
        "jaro_winkler_similarity(lower(a.s), b.s) > 0.5",
        "levenshtein(a.s, b.s, a.i) < 3",
        "levenshtein(a.s) < 3",
        "levenshtein(lower(a.s), b.s) < 3",  # DuckDB does that
        "levenshtein(a.s, b.s) * 2 < 3",
        "sin(a.x, 2) < 3",
        "sin(a.d / b.d) < 3",  # a quotient of decimals that may raise
        "CASE WHEN sin(a.x) > 0 THEN 1 ELSE 2 END > 1",
    ],
)
def test_all_else_is_left_to_others(text: str) -> None:
    assert read_comparisons(text) is None


@pytest.mark.parametrize("limits", ["1, 2", "1.5, 2.5"])
def test_predicates_beside_inexact_functions_are_called_once(limits: str) -> None:
    near = PythonPredicate("near", lambda x, ys: True)
    (conjunct,) = parse_where(f"levenshtein(a.s, b.s) < if(near(a.x, b.x), {limits})", STREAMS, [near], SPARKS)
    assert [call.predicate for call in conjunct.calls] == ["near"] and not conjunct.near


@pytest.mark.parametrize(("text", "_"), [case for case in TERMS if "vector_" in case[0]])
def test_vectors_of_32_bits_are_left_to_others(text: str, _: list[str]) -> None:
    assert read_comparisons(text, Dialect(wide_vectors=False)) is None


def test_what_raises_is_nan_in_a_leaf() -> None:
    comparisons = read_comparisons("sin(a.i + b.i) < 0.5")
    assert comparisons is not None
    (leaf,) = comparisons[0].inputs
    assert isinstance(leaf, Leaf)
    assert "TRY(" in leaf.sql
    assert comparisons[0].columns == {Column(0, 4), Column(1, 4)}


def test_what_is_not_to_be_trusted_is_nan_in_a_leaf() -> None:
    one = table(rows(2, 1))
    texts = one.set_column(7, "s", pa.array(["é", "e"]))
    pairs = Pairs(texts, texts, Dialect())
    possible, sure = pairs.decide("exp(levenshtein(lower(a.s), b.s)) < 2")
    assert (possible.tolist(), sure.tolist()) == ([True, True], [False, True])


def test_floats_stay_floats_without_ansi() -> None:
    comparisons = read_comparisons("vector_inner_product(a.v, b.v) + a.i > 0.5", Dialect(ansi=False))
    assert comparisons is not None
    assert format_term(comparisons[0].left).startswith("float(+(vector_inner_product")


def test_terms_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="gamma of 1 terms is unknown"):
        MathFunction("gamma", (Leaf("x"),))
    with pytest.raises(ValueError, match="no function of vectors"):
        VectorFunction("cosine", Column(0, 0), Column(1, 0))
    with pytest.raises(ValueError, match="no function of texts"):
        TextFunction("soundex", Column(0, 0), Column(1, 0))
