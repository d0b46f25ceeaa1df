"""The pages keep their word: examples run and print what they show, names and paths exist, links lead somewhere."""

import contextlib
import doctest
import importlib
import io
import re
import runpy
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
    return [(found[1], found[2], text[: found.start()].count("\n") + 1) for found in FENCE.finditer(text)]


def examples(page: Path) -> Iterator[tuple[str, str | None, int]]:
    """The Python blocks of a page, each with the output shown right after it."""
    found = [*blocks(page), ("", "", 0)]
    for (language, text, line), (following, shown, _) in pairwise(found):
        if language == "python":
            yield text, shown if following == "text" else None, line


def run_page(page: Path, spark: SparkSession) -> dict[str, Any]:
    """Run the examples of a page, and return the names that they leave behind."""
    names: dict[str, Any] = {"spark": spark, "__name__": "__main__"}
    for text, shown, line in examples(page):
        told = io.StringIO()
        with contextlib.redirect_stdout(told):
            exec(compile("\n" * line + text, str(page), "exec"), names)
        if shown is not None:
            assert told.getvalue().strip() == shown.strip(), f"{page.name}, line {line}"
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
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


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
    drawn = {picture.name for picture in tmp_path.iterdir()}
    assert drawn == {picture.name for picture in (ROOT / "docs" / "figures").glob("*.svg")}


def test_the_site_has_the_sections_of_the_list_of_pages() -> None:
    listed = re.findall(
        r"^## (.*)$|^\| \[[^]]+\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text(), re.MULTILINE
    )
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = re.findall(r"^  - ([^:]+):$|^      - [^:]+: ([\w-]+\.md)$", nav, re.MULTILINE)
    ours = [("", "contributing.md"), ("", "changes.md")]  # from outside docs/
    assert [entry for entry in pages if entry not in ours] == listed
    assert {page for _, page in listed if page} == {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
