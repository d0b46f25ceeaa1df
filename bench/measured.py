"""What the programs have in common that a bench starts to join auctions, bids and payments: arguments and answers."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.auctions_reference import outcome
from bench.common import UsageSampler


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Return a parser that knows the folders, for more to be added."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--files", type=Path, required=True, help="files of watersmeet.workload.write_batches")
    parser.add_argument("--out", type=Path, required=True, help="empty folder for results and checkpoint")
    return parser


def measure(out: Path, run: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
    """Run a join whose results go to `out`; write what its batches did, and print what all took as a JSON line.

    Args:
        out: The folder of its results.
        run: Runs it, and returns the figures of each batch.
    """
    with UsageSampler() as usage:
        start = time.perf_counter()
        batches = run()
        seconds = time.perf_counter() - start
    (out / "batches.json").write_text(json.dumps(batches))
    result = {
        "seconds": round(seconds, 3),
        "rows": outcome(out / "results").count,
        "cpu_seconds": round(usage.cpu_seconds, 2),
        "peak_rss_mb": round(usage.peak_rss_mb),
        "workers_rss_mb": round(usage.workers_rss_mb),
    }
    print(json.dumps(result))
