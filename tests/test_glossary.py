"""One word per concept: names are nouns or verbs, no two things share one, and the glossary names what exists."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = {
    path.relative_to(ROOT / "watersmeet").as_posix(): ast.parse(path.read_text())
    for path in sorted((ROOT / "watersmeet").rglob("*.py"))
}

PARTICIPLES = re.compile(
    r"""_*(asked|calm|done|drawn|found|given|gone|heard|hearing|held|judged|kept|known|left|made|met|named|needed|put|said
    |seen|shown|sought|spoken|taken|thought|told|wanted)_*""",
    re.IGNORECASE | re.VERBOSE,
)
"""What something has undergone doesn't say what it is: a name is a noun, a function's a verb."""
REGULAR = re.compile(r"_*(?!feed|need|seed|speed)[a-z]+ed_*")
"""Of functions, regular participles too: they do something, so they are named by a verb or by what they return."""
PUBLIC = {
    "Given": '`watersmeet.ordering.Given`, and `order="given"`: the order given in the definition',
    "clustered": "`wm.clustered`, and CLUSTERED in SQL: a stream that is clustered by a column",
    "ordered": "`wm.ordered`, and ORDERED in SQL: a stream that is ordered by a column",
    "limited": "`watersmeet.limits.limited`, a context in which limits are others",
}
"""Participles that users write, each with its meaning."""

CONVENTIONAL = {
    "__init__.py": "Python's own",
    "plan.py": "what the plan of a batch says of one concern",
}
"""File names that several packages use in one sense."""
MIRROR = "testing/"
"""The oracle calls things as the join does, on purpose: it defines what they mean, and shares no code."""


def definitions(module: ast.Module) -> Iterator[str]:
    """Yield the names of a module's classes, functions, constants and variables."""
    for node in module.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def classes(module: ast.Module) -> Iterator[ast.ClassDef]:
    """Yield a module's classes, those inside others included."""
    return (node for node in ast.walk(module) if isinstance(node, ast.ClassDef))


def members(module: ast.Module) -> Iterator[str]:
    """Yield the methods and fields of a module's classes, each with its class: `Window.deadline`."""
    for kind in classes(module):
        names = definitions(ast.Module(kind.body, []))
        yield from (f"{kind.name}.{name}" for name in names)


def shared(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names that occur at several places, with these places."""
    places = defaultdict(list)
    for name, place in pairs:
        places[name].append(place)
    return [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]


def test_no_name_is_a_bare_participle() -> None:
    names = ((name, path) for path, module in MODULES.items() for name in definitions(module))
    bare = [f"{path}: {name}" for name, path in names if PARTICIPLES.fullmatch(name) and name not in PUBLIC]
    assert bare == []


def test_no_function_is_a_regular_participle() -> None:
    functions = (
        (node.name, path)
        for path, module in MODULES.items()
        for node in module.body
        if isinstance(node, ast.FunctionDef)
    )
    bare = [f"{path}: {name}" for name, path in functions if REGULAR.fullmatch(name) and name not in PUBLIC]
    assert bare == []


def test_no_two_files_share_a_name() -> None:
    files = ((Path(path).name, path) for path in MODULES)
    assert shared((name, path) for name, path in files if name not in CONVENTIONAL) == []


def test_no_two_classes_share_a_name() -> None:
    kinds = ((kind.name, path) for path, module in MODULES.items() for kind in classes(module))
    assert shared((name, path) for name, path in kinds if not path.startswith(MIRROR)) == []


def test_what_the_glossary_names_exists() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    cells = re.findall(r"^\| \*\*.* \|(.*)\|$", page, re.MULTILINE)
    assert len(cells) > 80
    modules = MODULES.values()
    names = {name for module in modules for name in (*definitions(module), *members(module))}
    names |= {Path(path).name for path in MODULES}
    cited = [name for cell in cells for name in re.findall(r"`(.+?)`", cell)]
    assert [name for name in cited if name not in names] == []


def test_no_word_has_two_meanings() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    cells = re.findall(r"^\| (\*\*.*?) \|", page, re.MULTILINE)
    words = [word for cell in cells for word in re.findall(r"\*\*(.+?)\*\*", cell)]
    assert sorted(words) == sorted(set(words))
