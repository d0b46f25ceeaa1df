"""The pages as a site, built as `make docs` builds it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import watersmeet
from tests.observe.dashboard.browser import MISSING, Browser, is_there

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, and what its build said in a file beside it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"README"}
    others = {"index", "contents", "contributing", "changes", "404"}
    assert {path.stem for path in site.glob("*.html")} == pages | others


def test_nothing_is_fetched_from_outside(site: Path) -> None:
    for page in site.glob("*.html"):
        html = page.read_text()
        assert not re.findall(r"<(?:script|img|iframe)[^>]+src=\"?(?:https?:)?//", html), page.name
        assert not re.findall(r"<link[^>]+href=\"?(?:https?:)?//", html), page.name
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.findall(r"url\(\"?https?:", styles)


def test_the_reference_has_the_docstrings_in_full(site: Path) -> None:
    html = (site / "reference.html").read_text()
    for name in watersmeet.__all__:
        assert f'id="watersmeet.{name}"' in html, name
        assert f'href="#watersmeet.{name}"' in html, name
    assert "&lt;!--" not in html and ":::" not in html
    assert '<a href="metadata.html">metadata</a>' in html


def test_search_finds_pages_and_docstrings(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    places = {entry["location"] for entry in index["docs"]}
    assert {"semantics.html#watermark", "reference.html#watersmeet.join", "index.html"} <= places
    assert (site / "search" / "search_index.js").exists() and (site / "iframe-worker.js").exists()


@pytest.mark.skipif(not is_there(), reason=MISSING)
def test_search_works_on_pages_opened_as_files(site: Path) -> None:
    with Browser() as browser:
        browser.open(f"{(site / 'index.html').as_uri()}?q=watermark", drawn=".md-search-result__item")
        found = browser.run("return document.querySelector('.md-search-result__list').innerText")
        assert "What a join means" in found
        assert browser.complaints() == []
