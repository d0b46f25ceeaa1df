"""Takes the picture of the live page, as it was right after the last batch: `python docs/screenshot.py CHECKPOINT`."""

import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

from watersmeet.observe.dashboard.build import build_view
from watersmeet.observe.dashboard.checkpoint_reader import CheckpointReader, end_time
from watersmeet.observe.dashboard.dashboard_view import DashboardView
from watersmeet.observe.serving import PageServer, ViewCache
from watersmeet.state.store.places import store_of

PICTURE = Path(__file__).parent / "figures" / "watching.png"
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
WIDTH, HEIGHT = 1180, 1390


class Then(ViewCache):
    """Looks at a checkpoint as if its query were still running."""

    def look(self) -> DashboardView:
        """Return what was to be seen a second after the last batch."""
        found = self.reader.read(0.0)
        running = replace(found, runner=replace(found.runner, has_ended=False, silence=0.0, is_running=True))
        return build_view(running, end_time(found.progress[-1]) + 1_000_000)


def main(checkpoint: str) -> None:
    """Serve the page, and let Chromium take its picture."""
    with (
        PageServer(Then(CheckpointReader(store_of(checkpoint))), 0) as server,
        tempfile.TemporaryDirectory() as profile,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shape = (f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", "--virtual-time-budget=3000")
        command = ["chromium", *FLAGS, *shape, f"--screenshot={PICTURE}", server.address]
        subprocess.run(command, check=True, capture_output=True, timeout=240)
        server.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
