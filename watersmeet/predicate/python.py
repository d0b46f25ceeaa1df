"""The decorator that turns a Python function into something `where` can call."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args, overload

from watersmeet.errors import DefinitionError
from watersmeet.formatting import with_article
from watersmeet.predicate.model import Form, PythonPredicate

Predicates = Sequence[PythonPredicate | Callable[..., Any]] | Mapping[str, PythonPredicate | Callable[..., Any]]
"""What `predicates=` takes."""
FORMS: tuple[Form, ...] = get_args(Form)


@overload
def predicate(function: Callable[..., Any], /) -> PythonPredicate: ...


@overload
def predicate(
    *,
    name: str | None = None,
    form: Form = "array",
    nulls: bool = False,
    arrow: bool = False,
    symmetric: bool = False,
) -> Callable[[Callable[..., Any]], PythonPredicate]: ...


def predicate(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    form: Form = "array",
    nulls: bool = False,
    arrow: bool = False,
    symmetric: bool = False,
) -> PythonPredicate | Callable[[Callable[..., Any]], PythonPredicate]:
    """Make a predicate of a Python function, to be called from `where` and listed in `predicates=[...]`.

    Args:
        function: The function, when used as a bare decorator.
        name: How `where` calls it; the function's own name if not given.
        form: `array`: one row against an array of candidates; `pair`: scalars; `matrix`: arrays on both sides.
        nulls: Whether NULL arguments reach the function; otherwise its answer for them is NULL.
        arrow: Whether it wants Arrow arrays; otherwise NumPy arrays.
        symmetric: Whether it has two arguments that may change places: then in the form `array` `x` may be a value of
            either, whichever side has fewer, so that it is called less often.

    Raises:
        DefinitionError: If an option is wrong, or what it decorates isn't a function or has no name for SQL.

    Example:
        >>> @predicate(form="pair")
        ... def close(x, y):
        ...     return abs(x - y) < 3
        >>> close(1, 2), close.name, close.form
        (True, 'close', 'pair')
    """
    if form not in FORMS:
        raise DefinitionError(f"A predicate's form is one of {', '.join(FORMS)}, not {form!r}.")
    for option, value in (("nulls", nulls), ("arrow", arrow), ("symmetric", symmetric)):
        if not isinstance(value, bool):
            raise DefinitionError(f"A predicate's {option} is True or False, not {value!r}.")

    def make(function: Callable[..., Any]) -> PythonPredicate:
        """Return the predicate of a function; raises DefinitionError if it is none, or has no name for SQL."""
        if not callable(function):
            raise DefinitionError(f"@predicate decorates a function, not {function!r}.")
        if isinstance(function, PythonPredicate):
            own = function.name
            raise DefinitionError(
                f"'{own}' is a predicate already; list it as it is in predicates=[{own}], or under another name in "
                f"predicates={{'other': {own}}}."
            )
        return PythonPredicate(_check_name(name, function), function, form, nulls, arrow, symmetric)

    return make if function is None else make(function)


def _check_name(name: str | None, function: Callable[..., Any]) -> str:
    sql_name = getattr(function, "__name__", "") if name is None else name
    if not (isinstance(sql_name, str) and sql_name.isidentifier()):
        raise DefinitionError(f"A predicate needs a name that SQL can call, such as name='similar', not {sql_name!r}.")
    return sql_name


def check_predicates(predicates: Any) -> tuple[PythonPredicate, ...]:
    """Return the predicates of a list, or of a dict by the names that `where` calls them by.

    A plain function becomes a predicate of form `array`.

    Raises:
        DefinitionError: If it is neither, if an item is not a function or has no name, or if two share a name.
    """
    if isinstance(predicates, str) or not isinstance(predicates, Collection | Iterator):
        own = predicates.name if isinstance(predicates, PythonPredicate) else getattr(predicates, "__name__", "similar")
        example = f"[{own}]" if isinstance(own, str) and own.isidentifier() else "{'near': lambda x, ys: ...}"
        raise DefinitionError(f"predicates={predicates!r} must be a list or a dict; write predicates={example}.")
    if isinstance(predicates, Mapping):
        return tuple(_rename(name, one) for name, one in predicates.items())
    items = tuple(map(_from_list, predicates))
    by_name: dict[str, PythonPredicate] = {}
    for one in items:
        if by_name.setdefault(one.name, one) != one:
            raise DefinitionError(f"Two predicates are called '{one.name}'; give each a name of its own: name='...'.")
    return items


def _rename(name: Any, one: Any) -> PythonPredicate:
    """Return a predicate under the name that a dict gives it; raises DefinitionError for other items and bad names."""
    if isinstance(one, PythonPredicate):
        return replace(one, name=_check_name(name, one.function))
    _check_function(one)
    return predicate(name=name if isinstance(name, str) else repr(name))(one)


def _from_list(one: Any) -> PythonPredicate:
    """Return an item of a list as a predicate; a function keeps its own name.

    Raises:
        DefinitionError: If it isn't a function, or has no name.
    """
    if isinstance(one, PythonPredicate):
        return one
    _check_function(one)
    name = getattr(one, "__name__", "")
    if not name.isidentifier():
        what = "lambda" if name == "<lambda>" else type(one).__name__
        raise DefinitionError(
            f"predicates=[...] holds {with_article(what)}, which has no name for `where` to call; write "
            "predicates={'near': lambda x, ys: ...}, or name it with wm.predicate(name='near')(...)."
        )
    return predicate(one)


def _check_function(one: Any) -> None:
    """Raise DefinitionError if an item of `predicates` isn't a function."""
    if not callable(one):
        raise DefinitionError(
            f"predicates holds {with_article(type(one).__name__)}, which is no function; make predicates with "
            "@wm.predicate."
        )
