"""The reference lists what there is: names, options, progress fields, commands."""

import argparse
import ast
import inspect
import re
import runpy
from dataclasses import fields
from pathlib import Path

import watersmeet
from docs.progress_fields import FIELDS
from watersmeet.batch.side_outputs import SIDES
from watersmeet.cli import build_parser
from watersmeet.spark.api import writer
from watersmeet.spark.api.define import JoinOptions
from watersmeet.spark.api.join_query import JoinQuery
from watersmeet.spark.api.writer import CONSOLE_OPTIONS, OWN_OPTIONS, JoinWriter

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = (DOCS / "reference.md").read_text()


def listed(under: str) -> list[str]:
    """Return what the first columns of the tables below a heading list."""
    section = re.split(r"^##+ ", PAGE.split(f"# {under}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def test_the_page_is_what_the_script_writes() -> None:
    script = runpy.run_path(str(DOCS / "reference.py"))
    assert script["page"]() == PAGE, "write it anew: .venv/bin/python docs/reference.py"


def test_every_name_of_the_package_is_listed_once() -> None:
    names = re.findall(r"^\| `wm\.(\w+)` \| \S", PAGE, re.MULTILINE)
    assert sorted(names) == sorted(watersmeet.__all__)


def test_every_method_of_writers_and_queries_is_listed() -> None:
    for kind in (JoinWriter, JoinQuery):
        members = {name for name in vars(kind) if not name.startswith("_") and name != "join"}
        assert {f"{kind.__name__}.{name}" for name in members} <= set(re.findall(r"^\| `([\w.]+)`", PAGE, re.MULTILINE))


def test_join_and_sql_take_the_same_options() -> None:
    options = {option.name: option.default for option in fields(JoinOptions)}
    for function in (watersmeet.join, watersmeet.sql):
        assert (
            options.items() <= {name: p.default for name, p in inspect.signature(function).parameters.items()}.items()
        )


def test_the_options_listed_are_those_that_the_writer_reads() -> None:
    assert listed("Writer options") == [*OWN_OPTIONS, *CONSOLE_OPTIONS]
    strings = {
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(writer)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    sides = {f"{kind}Path" for kind in SIDES}
    assert {*OWN_OPTIONS, *CONSOLE_OPTIONS} <= strings | sides
    read = re.findall(r"_options(?:\.get\(|\[)\"(\w+)\"|\"(\w+)\" in self\._options", inspect.getsource(writer))
    assert {one or other for one, other in read} <= {*OWN_OPTIONS, *CONSOLE_OPTIONS}


def test_every_progress_field_is_listed() -> None:
    assert listed("Progress fields") == list(FIELDS)


def test_every_command_and_flag_is_listed() -> None:
    commands = next(a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert re.findall(r"^### watersmeet (\w+)$", PAGE, re.MULTILINE) == list(commands)
    for name, command in commands.items():
        flags = set(re.findall(r"--[\w-]+", command.format_help())) - {"--help", "--a"}
        assert flags == {flag for row in listed(f"watersmeet {name}") for flag in re.findall(r"--[\w-]+", row)}
