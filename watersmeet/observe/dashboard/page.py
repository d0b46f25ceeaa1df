"""The page: one file without anything from elsewhere; it asks for the view, and shows it."""

import json
from importlib.resources import files

from watersmeet.observe.dashboard.view import View

POLICY = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What a browser lets the page do: nothing but its own script, and ask who served it."""


def page(nonce: str) -> bytes:
    """Return the page, whose script and style run by this word only."""
    text = files("watersmeet.observe.dashboard").joinpath("page.html").read_text("utf-8")
    return text.replace("NONCE", nonce).encode()


def answer(view: View) -> bytes:
    """Return a view as the page asks for it."""
    return json.dumps(view.plain(), allow_nan=False).encode()
