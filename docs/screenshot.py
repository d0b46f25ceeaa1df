"""Takes the picture of the live page: `python docs/screenshot.py CHECKPOINT`, beside a query that runs."""

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from watersmeet.serving import serve

PICTURE = Path(__file__).parent / "figures" / "watching.png"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WIDTH, HEIGHT = 1180, 1400


def main(checkpoint: str) -> None:
    """Serve the page, and let Chromium take its picture."""
    with serve(checkpoint) as server, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shape = (f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", "--virtual-time-budget=3000")
        command = ["chromium", *FLAGS, *shape, f"--screenshot={PICTURE}", server.address]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        server.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
