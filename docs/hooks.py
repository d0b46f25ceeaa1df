"""What MkDocs does beyond `mkdocs.yml`: pages from outside docs/, links, and docstrings in the reference.

Pages are written for readers of the repository, whose links are relative to it. The home page of the site is README.md.
"""

import posixpath
import re
from pathlib import Path
from textwrap import indent
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "LICENSE": "license.txt",
    "examples/quickstart.py": "quickstart.py",
}
"""What the site has from elsewhere in the repository, and where."""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:)([^)#\s]+)")
DIRECTIVE = re.compile(r"<!-- (:::.*?)\n-->", re.DOTALL)
NAME = re.compile(r"^\| `wm\.(\w+)`", re.MULTILINE)
EXAMPLE = re.compile(r"(?<=\n\n)>>> .*?(?=\n\n(?!>>>)|\Z)", re.DOTALL)
PAGE = re.compile(r"\bdocs/([\w-]+)\.md\b")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is outside docs/."""
    for source, place in OUTSIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links lead to places of the site, and fill the reference."""
    sources = {place: source for source, place in OUTSIDE.items()}
    folder = posixpath.dirname(sources.get(page.file.src_uri, f"docs/{page.file.src_uri}"))
    markdown = LINK.sub(lambda link: _place(posixpath.normpath(posixpath.join(folder, link[1]))), markdown)
    return NAME.sub(r"| [`wm.\1`][watersmeet.\1]", DIRECTIVE.sub(r"\1", markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Make links of the pages that docstrings name."""
    return PAGE.sub(r'<a href="\1.html">\1</a>', html)


def _place(path: str) -> str:
    """Return where something of the repository is on the site; all its pages are in one folder."""
    return OUTSIDE.get(path, path.removeprefix("docs/"))


class Examples(griffe.Extension):
    """Tells griffe which paragraphs of docstrings are examples; they have no title of their own."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put a title above each example."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(
                lambda example: f"Examples:\n{indent(example[0], '    ')}", obj.docstring.value
            )
