"""Moto's S3 on a free port of loopback: prints its port, ends with its standard input. Run by moto's Python."""

import os
import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.server import create_backend_app
from werkzeug.serving import make_server

app = create_backend_app("s3")
lock = threading.Lock()


def one_at_a_time(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """[!] Moto looks whether the object is there, then puts: of two at once, both would win."""
    with lock:
        return list(app(environ, start_response))


server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("PORT", server.server_port, flush=True)
while sys.stdin.read(1):
    pass
os._exit(0)
