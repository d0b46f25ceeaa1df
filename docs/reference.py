"""Writes the reference anew from docstrings and from the tables in the code: `.venv/bin/python docs/reference.py`.

The page has tables that any Markdown viewer shows. Comments in it say what the site shows below them: the docstrings in
full, by mkdocstrings; see `docs/hooks.py`.
"""
# ruff: noqa: E501 (paragraphs of the page are lines)

import argparse
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from docs.progress_fields import FIELDS
from watersmeet.cli import build_parser
from watersmeet.spark.api.writer import CONSOLE_OPTIONS, OWN_OPTIONS

PAGE = Path(__file__).parent / "reference.md"
GROUPS = {
    "Joins": ("join", "sql", "stream", "table", "asof", "Join"),
    "Windows": ("tumbling", "hopping", "count"),
    "Predicates in Python": ("predicate",),
    "Constraints and punctuations": ("key", "ordered", "clustered", "foreign_key", "punctuations", "between"),
    "Running joins": ("JoinQuery", "Spill"),
    "Strategies": ("Auto", "PSP", "ATR", "CTR", "DSJ", "Hash", "Central"),
    "Advice": ("advise",),
    "Errors and warnings": (
        "WatersmeetError",
        "DefinitionError",
        "SqlError",
        "PredicateError",
        "StateError",
        "DefinitionWarning",
    ),
}
"""The names of `watersmeet`, as the page shows them."""
RETURNED = (
    "watersmeet.spark.api.stream.Stream",
    "watersmeet.spark.api.writer.JoinWriter",
    "watersmeet.observe.why.answer.Answer",
    "watersmeet.adapt.advice.Advice",
    "watersmeet.adapt.findings.Finding",
)
"""Classes that users meet, but don't name."""
SETTINGS = ("Spill", "Auto", "PSP", "ATR", "CTR", "DSJ", "Hash", "Central")
"""Classes that users make, and hand on without calling their methods."""
INHERITED = {"Join": ("schema", "toDF")}
"""Members of base classes that users meet."""

HEAD = """# Reference

Every public name, option, progress field and command. [reference.py](reference.py) writes this page from docstrings and from the tables that the code itself uses. Here each name has its first sentence; `help(wm.join)` in Python shows the rest, as does the site that `make docs` builds.

## Python

`import watersmeet as wm`
"""
WRITER = """
## Writer options

`join.writeStream.option("latePath", "/data/late")`. The case of a name does not matter. An option that is none of these goes to the format.

"""
CONSOLE = """
The format `console` takes two more:

"""
PROGRESS = """
## Progress fields

`query.progress` is a list of dicts, one per batch, oldest first, kept across restarts for the last 500 batches. Event times in it (`watermark`, `settled`, `latest`) and `timestamp` are ISO 8601 text in UTC, without a zone for `timestamp_ntz`; `datetime.fromisoformat` reads them. `[]` stands for each entry of a list, `<stream>` for the name of a stream. A `StreamingQueryListener` gets a few of them: see [watching](watching.md).

"""
COMMANDS = """
## Commands

`watersmeet COMMAND --help` says the same; `watersmeet --version` prints the version. The exit code is 0, or 2 for bad input, with a sentence on stderr.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


def page() -> str:
    """Return the text of the page."""
    parts = [HEAD, *map(_group, GROUPS, GROUPS.values())]
    parts.append(_section("What these return", RETURNED, prefix=""))
    parts += [_module("Testing your own joins", "watersmeet.testing"), _module("Test data", "watersmeet.workload")]
    parts += [WRITER, _options(OWN_OPTIONS), CONSOLE, _options(CONSOLE_OPTIONS)]
    parts += [PROGRESS, _table(("field", "what it says"), FIELDS), COMMANDS, *_commands(build_parser())]
    return "".join(parts)


# -- names


def _group(title: str, names: Iterable[str]) -> str:
    return _section(title, [f"watersmeet.{name}" for name in names], prefix="wm.")


def _module(title: str, module: str) -> str:
    names = [f"{module}.{name}" for name in import_module(module).__all__]
    functions = [name for name in names if callable(_value(name))]
    return _section(title, functions, prefix=f"{module}.")


def _section(title: str, paths: Iterable[str], prefix: str) -> str:
    """Return a table of names, with their members, and what the site shows below it."""
    rows, details = {}, ""
    for path in paths:
        value, name = _value(path), path.rpartition(".")[2]
        members = _members(value)
        rows[prefix + name] = _summary(value)
        rows |= {f"{name}.{member}": _summary(inspect.getattr_static(value, member)) for member in members}
        details += _directive(path, members)
    return f"\n### {title}\n\n{_table(('name', ''), rows)}{details}"


def _value(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _members(value: Any) -> list[str]:
    """Return the methods and properties that a class is used by, in the order in which they are written."""
    if not inspect.isclass(value) or issubclass(value, Exception) or value.__name__ in SETTINGS:
        return []
    own = [name for name, member in vars(value).items() if _is_public(name, member)]
    return [*own, *INHERITED.get(value.__name__, ())]


def _is_public(name: str, member: Any) -> bool:
    return not name.startswith("_") and (callable(member) or isinstance(member, property | staticmethod))


def _summary(value: Any) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _directive(path: str, members: list[str]) -> str:
    inherited = ", ".join(INHERITED.get(path.rpartition(".")[2], ()))
    options = f"\n      inherited_members: [{inherited}]" if inherited else ""
    return f"\n<!-- ::: {path}\n    options:\n      members: [{', '.join(members)}]{options}\n-->\n"


# -- commands


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield f"\n### watersmeet {name}\n\n{_sentence(command.description or '')}\n\n"
                yield _table(("argument", "meaning"), dict(_arguments(command)))
                yield f"\n{command.epilog}\n" if command.epilog else ""


def _arguments(command: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in command._actions:
        if not isinstance(action, argparse._HelpAction):
            yield _spelled(action), _meaning(action)
    if command.usage and "--STREAM" in command.usage:  # any stream's name will do, so the parser has no list of them
        yield "--STREAM COLUMN=VALUE", "the tuple of a stream, found by the value of a column; once or more"


def _spelled(action: argparse.Action) -> str:
    value = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else "")
    text = value if isinstance(value, str) else " ".join(value)
    return " ".join(filter(None, [", ".join(action.option_strings), "" if action.nargs == 0 else text]))


def _meaning(action: argparse.Action) -> str:
    default = "" if action.default in (None, False, [], 0) else f"by default `{action.default}`"
    return "; ".join(filter(None, [action.help, default]))


# -- Markdown


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _options(options: Mapping[str, str]) -> str:
    return _table(("option", "meaning"), options)


def _table(titles: tuple[str, str], rows: Mapping[str, str]) -> str:
    """Return a table of names, as code, and texts, in which pages are links."""
    head = f"| {titles[0]} | {titles[1]} |\n| --- | --- |\n"
    escaped = {name: _linked(text).replace("|", "\\|") for name, text in rows.items()}
    return head + "".join(f"| `{name}` | {text} |\n" for name, text in escaped.items())


def _linked(text: str) -> str:
    return re.sub(r"\bdocs/([\w-]+)\.md", lambda page: f"[{page[1].replace('-', ' ')}]({page[1]}.md)", text)


if __name__ == "__main__":
    main()
