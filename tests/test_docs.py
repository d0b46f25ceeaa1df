"""The pages are true: examples run and print what they show, names and paths exist, links lead somewhere."""

import ast
import contextlib
import doctest
import importlib
import io
import re
import runpy
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples import quickstart

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """The fenced blocks of a page: language, text, line."""
    text = page.read_text()
    return [(match[1], match[2], text[: match.start()].count("\n") + 1) for match in FENCE.finditer(text)]


def examples(page: Path) -> Iterator[tuple[str, str | None, int]]:
    """The Python blocks of a page, each with the output shown right after it."""
    for (language, text, line), (next_language, output, _) in pairwise([*blocks(page), ("", "", 0)]):
        if language == "python":
            yield text, output if next_language == "text" else None, line


def run_page(page: Path, spark: SparkSession) -> dict[str, Any]:
    """Run the examples of a page, and return the names that they leave behind."""
    names: dict[str, Any] = {"spark": spark, "__name__": "__main__"}
    for text, output, line in examples(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + text, str(page), "exec"), names)
        if output is not None:
            assert printed.getvalue().strip() == output.strip(), f"{page.name}, line {line}"
    return names


@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/getting-started.md",
        "docs/recipes.md",
        "docs/outer-joins.md",
        "docs/adaptation.md",
        "docs/watching.md",
        "docs/metadata.md",
        "docs/writing-placements.md",
        "docs/outputs.md",
        "docs/asking.md",
    ],
)
def test_examples_run_and_print_what_is_shown(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert list(examples(ROOT / name))
    run_page(ROOT / name, spark)


def test_the_quickstart_is_the_readmes_example() -> None:
    file = re.sub(r"\s+", " ", Path(quickstart.__file__).read_text())
    code, _, _ = next(examples(ROOT / "README.md"))
    for line in code.splitlines():
        statement = line.split("  #")[0].strip()
        if not statement.startswith("def "):  # the file has type hints
            assert re.sub(r"\s+", " ", statement) in file, statement


@each_page
def test_interactive_examples(page: Path) -> None:
    text = "\n".join(text for language, text, _ in blocks(page) if language == "pycon")
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0


@each_page
def test_python_blocks_are_python(page: Path) -> None:
    for text, _, line in examples(page):
        compile("\n" * line + text, str(page), "exec")


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path) if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@each_page
def test_paths_exist(page: Path) -> None:
    folders = "watersmeet|tests|bench|papers|examples|docs"
    cited = re.findall(rf"`(?:python )?((?:{folders})/[\w./-]*)(?: [^`]*)?`", page.read_text())
    missing = [path for path in cited if path != "bench/results" and not (ROOT / path).exists()]
    assert not missing


@each_page
def test_files_exist(page: Path) -> None:
    cited = re.findall(r"`(\w+\.py)`", page.read_text())
    files = {
        path.name
        for folder in ("watersmeet", "tests", "bench", "examples", "docs")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert set(cited) <= files


@each_page
def test_names_exist(page: Path) -> None:
    text = page.read_text()
    dotted = {*re.findall(r"\bwatersmeet(?:\.\w+)+", text)}
    short = {f"watersmeet.{name}" for name in re.findall(r"\bwm\.(\w+)", text)}
    missing = [name for name in sorted(dotted | short) if not resolves(name)]
    assert not missing


def resolves(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def test_the_map_has_the_layers_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == ["watersmeet"])
    listing = next(text for language, text, _ in blocks(ROOT / "docs" / "architecture.md") if language == "text")
    assert listing.splitlines() == layers


def test_the_map_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    packages = sorted(path.parent.name for path in (ROOT / "watersmeet").glob("*/__init__.py"))
    assert [name for name in packages if f"`watersmeet/{name}/" not in page] == []


def test_packages_name_files_that_exist() -> None:
    for init in (ROOT / "watersmeet").rglob("__init__.py"):
        docstring = ast.get_docstring(ast.parse(init.read_text())) or ""
        cited = re.findall(r"`([\w./]+(?:\.py|\.html|/))`", docstring)
        folders = (init.parent, ROOT, ROOT / "watersmeet")
        missing = [path for path in cited if not any((folder / path).exists() for folder in folders)]
        assert not missing, init


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        cited = re.findall(r"(?:`|^    )make ([a-z-]+)", text, re.MULTILINE)
        assert set(cited) <= targets, page.name


def test_pictures_are_drawn_by_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "figures.py"))
    monkeypatch.setitem(script["main"].__globals__, "FOLDER", tmp_path)
    script["main"]()
    pictures = {picture.name for picture in tmp_path.iterdir()}
    assert pictures == {picture.name for picture in (ROOT / "docs" / "figures").glob("*.svg")}


def test_the_site_has_the_sections_of_the_list_of_pages() -> None:
    listed = re.findall(
        r"^## (.*)$|^\| \[[^]]+\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE
    )
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = re.findall(r"^  - ([^:]+):$|^      - [^:]+: ([\w-]+\.md)$", nav, re.MULTILINE)
    ours = [("", "contributing.md"), ("", "changes.md")]  # from outside docs/
    assert [entry for entry in pages if entry not in ours] == listed
    assert {page for _, page in listed if page} == {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
