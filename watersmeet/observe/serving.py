"""The live screens: `watch` in the terminal, `serve` in a browser. Both only read."""

import hmac
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from rich.console import Console, RenderableType
from rich.live import Live

from watersmeet.errors import DefinitionError, WatersmeetError
from watersmeet.observe.dashboard.build import build_view
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointReader
from watersmeet.observe.dashboard.dashboard_view import DashboardView
from watersmeet.observe.dashboard.terminal import screen
from watersmeet.placement.base import check_above_zero
from watersmeet.state.store.file_format import consistent
from watersmeet.state.store.places import store_of

Drawing = TypeVar("Drawing")
LOOPBACK = "127.0.0.1"
FRESH = 0.5
"""Seconds for which a view is reused."""
LONGEST = 86_400
"""The longest interval between two views, in seconds."""
POLICY = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What a browser allows the page: its own script and style, and requests to its server."""


@dataclass
class ViewCache:
    """Builds views of one checkpoint, shared by several viewers.

    Attributes:
        reader: What reads the checkpoint.
    """

    reader: CheckpointReader
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last: tuple[float, DashboardView] | None = None

    def look(self) -> DashboardView:
        """Return the current view.

        Raises:
            WatersmeetError: If there is none.
        """
        return self.draw(lambda view: view)

    def draw(self, make: Callable[[DashboardView], Drawing]) -> Drawing:
        """Return what a function makes of the current view, which is read again if it is older than `FRESH` seconds.

        Raises:
            WatersmeetError: If there is none, or the checkpoint makes no sense.
        """
        with consistent(self.reader.store.root), self._lock:
            now = time.monotonic()
            if self._last is None or now - self._last[0] > FRESH:
                clock = time.time()
                self._last = now, build_view(self.reader.read(now, clock), int(clock * 1e6))
            return make(self._last[1])


def watch(checkpoint: str, every: float = 1.0, once: bool = False, console: Console | None = None) -> None:
    """Show a checkpoint's query in the terminal, until interrupted; once where there is no terminal.

    Args:
        checkpoint: The query's checkpointLocation.
        every: Seconds between two views.
        once: Whether to show one view only.
        console: Where to show it; None for the standard output.

    Raises:
        WatersmeetError: If the checkpoint doesn't exist, or the interval is out of range.
    """
    check_above_zero("every", every, LONGEST)
    views, console = ViewCache(CheckpointReader(store_of(checkpoint))), console or Console()

    def draw() -> RenderableType:
        return views.draw(lambda view: screen(view, console.width))

    if once or not console.is_terminal:
        console.print(draw())
        return
    with Live(draw(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(draw(), refresh=True)


def serve(checkpoint: str, port: int = 0) -> "PageServer":
    """Return a server of the page, bound to this host's loopback alone; `address` says where it is.

    The caller runs it, with `serve_forever`. Reads the checkpoint once, to reject one that can't be shown.

    Args:
        checkpoint: The query's checkpointLocation.
        port: The port; 0 for any that is free.

    Raises:
        WatersmeetError: If the checkpoint doesn't exist, or the port is taken.
    """
    views = ViewCache(CheckpointReader(store_of(checkpoint)))
    views.look()
    try:
        return PageServer(views, port)
    except (OSError, OverflowError) as error:
        why = str(error).rstrip(".")
        raise DefinitionError(f"Port {port} can't be used: {why}; give another, or 0 for any that is free.") from None


def render_page(nonce: str) -> bytes:
    """Return the page, whose script and style carry a nonce."""
    text = files("watersmeet.observe.dashboard").joinpath("page.html").read_text("utf-8")
    return text.replace("NONCE", nonce).encode()


def view_json(view: DashboardView) -> bytes:
    """Return a view as the JSON that the page requests."""
    return json.dumps(view.plain(), allow_nan=False).encode()


class PageServer(ThreadingHTTPServer):
    """Serves the page and its views to holders of the token.

    [!] Any page in a browser can send requests to this host's loopback. So every request needs the token, the host's
    name must be the one that was printed (other names that resolve to this host are refused), and no other page may
    read the responses.
    """

    daemon_threads = True

    def __init__(self, views: ViewCache, port: int) -> None:
        self.views, self.token = views, secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print an error of a request to stderr, but not that a browser has disconnected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        """The address of the page, with the token."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    def admits(self, host: str, token: str) -> bool:
        """Tell whether a request may be answered: it has the token, and names a host that the address could name."""
        is_known_host = host in (f"{LOOPBACK}:{self.server_port}", f"localhost:{self.server_port}")
        return hmac.compare_digest(token.encode(), self.token.encode()) and is_known_host


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        """Send the page that a request names; refuse it without the token, from another host, or with a bad address."""
        try:
            url = urlsplit(self.path)
        except ValueError:  # such as http://[/
            self._send_error(HTTPStatus.BAD_REQUEST, "The address can't be read: use the one that was printed.")
            return
        token = parse_qs(url.query).get("token", [""])[0]
        if not self.server.admits(self.headers.get("Host", ""), token):
            self._send_error(HTTPStatus.FORBIDDEN, "The token is missing or wrong: use the address that was printed.")
            return
        handle = _PAGES.get(url.path)
        if handle is None:
            self._send_error(HTTPStatus.NOT_FOUND, "There is no such page.")
        else:
            handle(self)

    def send_page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        policy = {"Content-Security-Policy": POLICY.format(nonce)}
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", render_page(nonce), policy)

    def send_view(self) -> None:
        try:
            self._send(HTTPStatus.OK, "application/json", self.server.views.draw(view_json))
        except (WatersmeetError, OSError) as error:
            self._send_error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _send_error(self, status: HTTPStatus, message: str) -> None:
        self._send(status, "application/json", json.dumps({"error": message}).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes, more: Mapping[str, str] | None = None) -> None:
        """Send a response that must not be cached or embedded elsewhere; `more` are further headers."""
        self.send_response(status)
        always = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        always |= {"Cross-Origin-Resource-Policy": "same-origin", "Content-Length": str(len(body))}
        for name, value in {"Content-Type": kind, **always, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the address contains the token."""


_PAGES: dict[str, Callable[[_Handler], None]] = {"/": _Handler.send_page, "/view.json": _Handler.send_view}
