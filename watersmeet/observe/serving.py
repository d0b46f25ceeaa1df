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
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from rich.console import Console, RenderableType
from rich.live import Live

from watersmeet.errors import DefinitionError, WatersmeetError
from watersmeet.observe.dashboard.build import view
from watersmeet.observe.dashboard.page import POLICY, answer, page
from watersmeet.observe.dashboard.recorded import Reader
from watersmeet.observe.dashboard.terminal import screen
from watersmeet.observe.dashboard.view import View
from watersmeet.placement.options import check_above_zero
from watersmeet.state.store.formats import consistent
from watersmeet.state.store.places import store_of

Made = TypeVar("Made")
LOOPBACK = "127.0.0.1"
FRESH = 0.5
"""Seconds for which a view is shown again instead of made anew."""
LONGEST = 86_400
"""The most seconds between two looks: a day."""


@dataclass
class Looker:
    """Makes views of one checkpoint, for several who look at it at once.

    Attributes:
        reader: What reads it.
    """

    reader: Reader
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last: tuple[float, View] | None = None

    def look(self) -> View:
        """Return what there is to see now.

        Raises:
            WatersmeetError: If there is nothing.
        """
        return self.draw(lambda view: view)

    def draw(self, make: Callable[[View], Made]) -> Made:
        """Return what is made of what there is to see now.

        Raises:
            WatersmeetError: If there is nothing, or no sense in it.
        """
        with consistent(self.reader.store.root), self._lock:
            now = time.monotonic()
            if self._last is None or now - self._last[0] > FRESH:
                clock = time.time()
                self._last = now, view(self.reader.read(now, clock), int(clock * 1e6))
            return make(self._last[1])


def watch(checkpoint: str, every: float = 1.0, once: bool = False, console: Console | None = None) -> None:
    """Show a checkpoint's query in the terminal, until interrupted; once where there is no terminal.

    Args:
        checkpoint: The query's checkpointLocation.
        every: Seconds between two looks.
        once: Whether one look is enough.
        console: Where to show it.

    Raises:
        WatersmeetError: If there is no such checkpoint, or no such time between two looks.
    """
    check_above_zero("every", every, LONGEST)
    looker, console = Looker(Reader(store_of(checkpoint))), console or Console()

    def draw() -> RenderableType:
        return looker.draw(lambda view: screen(view, console.width))

    if once or not console.is_terminal:
        console.print(draw())
        return
    with Live(draw(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(draw(), refresh=True)


def serve(checkpoint: str, port: int = 0) -> "PageServer":
    """Return a server of the page, on this host's loopback alone; `address` says where it is.

    Args:
        checkpoint: The query's checkpointLocation.
        port: The port; 0 for any that is free.

    Raises:
        WatersmeetError: If there is no such checkpoint, or the port is taken.
    """
    looker = Looker(Reader(store_of(checkpoint)))
    looker.look()
    try:
        return PageServer(looker, port)
    except (OSError, OverflowError) as error:
        why = str(error).rstrip(".")
        raise DefinitionError(f"Port {port} can't be used: {why}; give another, or 0 for any that is free.") from None


class PageServer(ThreadingHTTPServer):
    """Serves the page and its views to whoever has the token.

    [!] Any page that a browser shows can ask this host's loopback. So the token must come with every request, the
    host's name must be the one that was printed (a name that is made to point here is refused), and answers may be
    read by no other page.
    """

    daemon_threads = True

    def __init__(self, looker: Looker, port: int) -> None:
        self.looker, self.token = looker, secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that has gone meanwhile."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        """Where the page is, with the token."""
        return f"http://{LOOPBACK}:{self.server_port}/?token={self.token}"

    def admits(self, host: str, token: str) -> bool:
        """Tell whether a request may be answered."""
        known = host in (f"{LOOPBACK}:{self.server_port}", f"localhost:{self.server_port}")
        return hmac.compare_digest(token.encode(), self.token.encode()) and known


class _Handler(BaseHTTPRequestHandler):
    server: PageServer

    def do_GET(self) -> None:
        try:
            asked = urlsplit(self.path)
        except ValueError:  # such as http://[/
            self._told(HTTPStatus.BAD_REQUEST, "The address can't be read: use the one that was printed.")
            return
        token = parse_qs(asked.query).get("token", [""])[0]
        if not self.server.admits(self.headers.get("Host", ""), token):
            self._told(HTTPStatus.FORBIDDEN, "The token is missing or wrong: use the address that was printed.")
            return
        show = _PAGES.get(asked.path)
        if show is None:
            self._told(HTTPStatus.NOT_FOUND, "There is no such page.")
        else:
            show(self)

    def page(self) -> None:
        nonce = secrets.token_urlsafe(16)
        policy = {"Content-Security-Policy": POLICY.format(nonce)}
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", page(nonce), policy)

    def view(self) -> None:
        try:
            self._send(HTTPStatus.OK, "application/json", self.server.looker.draw(answer))
        except (WatersmeetError, OSError) as error:
            self._told(HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    def _told(self, status: HTTPStatus, says: str) -> None:
        self._send(status, "application/json", json.dumps({"error": says}).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes, more: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        always = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        always |= {"Cross-Origin-Resource-Policy": "same-origin", "Content-Length": str(len(body))}
        for name, value in {"Content-Type": kind, **always, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the address holds the token."""


_PAGES: dict[str, Callable[[_Handler], None]] = {"/": _Handler.page, "/view.json": _Handler.view}
