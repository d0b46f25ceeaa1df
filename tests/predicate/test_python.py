from functools import partial

import pytest

from watersmeet.errors import DefinitionError
from watersmeet.predicate.model import PythonPredicate
from watersmeet.predicate.python import check_predicates, predicate


def test_a_bare_decorator_makes_an_array_predicate() -> None:
    @predicate
    def similar(x: float, ys: list[float]) -> list[bool]:
        return [x == y for y in ys]

    assert (similar.name, similar.form, similar.nulls, similar.arrow) == ("similar", "array", False, False)
    assert similar(1.0, [1.0, 2.0]) == [True, False]


def test_options_are_kept() -> None:
    @predicate(name="near", form="matrix", nulls=True, arrow=True)
    def anything(xs: object, ys: object) -> None: ...

    assert isinstance(anything, PythonPredicate)
    assert (anything.name, anything.form, anything.nulls, anything.arrow) == ("near", "matrix", True, True)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(DefinitionError, match="form is one of array, pair, matrix, not 'row'"):
        predicate(form="row")  # type: ignore[call-overload]


def test_what_is_not_a_function_is_refused() -> None:
    with pytest.raises(DefinitionError, match="decorates a function, not 5"):
        predicate(5)  # type: ignore[call-overload]


def test_a_predicate_is_not_made_of_a_predicate() -> None:
    similar = predicate(near)
    for decorate in (predicate, predicate(name="close", form="pair")):
        with pytest.raises(DefinitionError, match=r"'near' is a predicate already; .* predicates=\{'other': near\}"):
            decorate(similar)


def test_a_name_that_sql_cannot_call_is_refused() -> None:
    with pytest.raises(DefinitionError, match="needs a name that SQL can call"):
        predicate(name="two words")(len)
    with pytest.raises(DefinitionError, match="not '<lambda>'"):
        predicate(lambda x, y: True)


def test_options_are_true_or_false() -> None:
    with pytest.raises(DefinitionError, match="A predicate's nulls is True or False, not 'yes'"):
        predicate(nulls="yes")  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="A predicate's arrow is True or False, not 1"):
        predicate(arrow=1)  # type: ignore[call-overload]


def near(x: float, ys: list[float]) -> list[bool]:
    return [x == y for y in ys]


def test_predicates_come_in_a_list() -> None:
    similar = predicate(near)
    assert check_predicates([similar]) == check_predicates(one for one in [similar]) == (similar,)
    assert check_predicates([similar, similar]) == (similar, similar)
    assert check_predicates(()) == ()
    with pytest.raises(DefinitionError, match=r"must be a list or a dict; write predicates=\[near\]"):
        check_predicates(similar)
    for other in (near, None, 5, "near"):
        with pytest.raises(DefinitionError, match="must be a list or a dict; write"):
            check_predicates(other)
    with pytest.raises(DefinitionError, match=r"write predicates=\{'near': lambda x, ys: ...\}"):
        check_predicates(lambda x, ys: True)


def test_a_plain_function_is_a_predicate_of_the_default_form() -> None:
    assert check_predicates([near]) == (predicate(near),)
    assert check_predicates([near, near]) == (predicate(near),) * 2


def test_a_dict_names_its_predicates() -> None:
    one, pair = lambda x, ys: ys > x, predicate(form="pair")(near)
    assert check_predicates({"above": one, "close": pair}) == (
        PythonPredicate("above", one),
        PythonPredicate("close", near, "pair"),
    )
    for name in ("two words", 5, ""):
        for what in (near, pair):
            with pytest.raises(DefinitionError, match="needs a name that SQL can call"):
                check_predicates({name: what})


def test_what_has_no_name_or_is_no_function_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"holds a lambda, which has no name for `where` to call; write predicat"):
        check_predicates([lambda x, y: True])
    with pytest.raises(DefinitionError, match="holds a partial, which has no name"):
        check_predicates([partial(near, 1.0)])
    for predicates in (["near"], {"near": "near"}):
        with pytest.raises(DefinitionError, match="holds a str, which is no function"):
            check_predicates(predicates)


def test_two_predicates_of_one_name_are_refused() -> None:
    with pytest.raises(DefinitionError, match="Two predicates are called 'near'; give each a name of its own"):
        check_predicates([predicate(near), predicate(form="pair")(near)])
