import pytest

from watersmeet.errors import DefinitionError
from watersmeet.predicate.model import PythonPredicate
from watersmeet.predicate.python import predicate


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
    with pytest.raises(DefinitionError, match="stands before a function, not before 5"):
        predicate(5)  # type: ignore[call-overload]


def test_a_name_that_sql_cannot_call_is_refused() -> None:
    with pytest.raises(DefinitionError, match="needs a name that SQL can call"):
        predicate(name="two words")(len)
    with pytest.raises(DefinitionError, match="not '<lambda>'"):
        predicate(lambda x, y: True)
