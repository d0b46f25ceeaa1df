"""A headless Chromium, driven over the WebDriver protocol with nothing but the standard library."""

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
MISSING = "there is no Chromium with its driver: `make browser` installs them where it can"
PATIENCE = 60.0


def is_there() -> bool:
    """Whether a browser and its driver are installed."""
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


class Browser:
    """One page; to be used with `with`."""

    def __enter__(self) -> "Browser":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._folder = tempfile.mkdtemp(prefix="chromium-")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._driver = subprocess.Popen(["chromedriver", f"--port={port}"], **quiet)  # type: ignore[call-overload]
        self._base = f"http://127.0.0.1:{port}"
        self._await_driver()
        options = {"args": [*FLAGS, f"--user-data-dir={self._folder}"], "binary": shutil.which("chromium")}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/session/{made['sessionId']}"
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(10)
            shutil.rmtree(self._folder, ignore_errors=True)

    def open(
        self, address: str, width: int = 1280, height: int = 900, scheme: str = "light", drawn: str = "#verdict"
    ) -> None:
        """Show a page in a window of a width, light or dark, and wait until it has drawn something."""
        self._tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        phone = width < 500
        self._tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self._ask("POST", "/url", {"url": address})
        self.wait(f"return document.querySelector('{drawn}') !== null")

    def wait(self, script: str) -> None:
        """Wait until a script returns something true."""
        until = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < until, f"{script}: {self.run('return document.body.innerText')}"
            time.sleep(0.1)

    def run(self, script: str) -> Any:
        """Return what a script returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def complaints(self) -> list[str]:
        """Return what the page has complained about in its console."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def picture(self, path: Path) -> None:
        """Save what is seen."""
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def _tell(self, command: str, **parameters: Any) -> None:
        self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _await_driver(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._ask("GET", "/status")
                return
            except urllib.error.URLError:
                assert time.monotonic() < until, "chromedriver does not answer"
                time.sleep(0.1)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=2 * PATIENCE) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None
