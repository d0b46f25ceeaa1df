"""ATR and CTR as their paper compares them: with what they are without their optimisations, and with unaware routing.

python papers/diffusion/comparison.py            2, 4 and 8 nodes
python papers/diffusion/comparison.py --quick    4 nodes only

Gu, Yu and Wang, "Adaptive Load Diffusion for Multiway Windowed Stream Joins" (ICDE 2007), section 5. The join and its
streams are those of `bench/joins/placements.py`. The rates being equal, only segment length and covers tell.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import watersmeet as wm
from bench.common import WINDOW, band_files, listing
from bench.joins.placements import EPSILON, RATE, SECONDS, SEGMENT, TITLE, check, compare
from bench.measurement import environment
from papers.diffusion.baselines import CtrUnoptimised, atr_unoptimised, unaware
from watersmeet.placement import Strategy


def strategies(nodes: int) -> dict[str, Strategy]:
    return {
        "ATR": wm.ATR(nodes, segment=f"{SEGMENT} seconds"),
        "ATR, unoptimised": atr_unoptimised(nodes, f"{WINDOW} seconds"),
        "CTR": wm.CTR(nodes),
        "CTR, unoptimised": CtrUnoptimised(nodes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4 nodes only")
    sizes = [4] if parser.parse_args().quick else [2, 4, 8]
    os.environ.update(environment())  # tasks have to find the placements of papers/
    with tempfile.TemporaryDirectory(prefix="watersmeet-bench-") as name:
        folder = Path(name)
        files = band_files(folder / "files", RATE, SECONDS)
        compared = compare("Diffusion", [one for n in sizes for one in strategies(n).items()], files, folder)
        simulated = [unaware(files, folder / f"unaware-{nodes}", EPSILON, nodes) for nodes in sizes]
    listing(TITLE, "diffusion", [asdict(one) for one in compared])
    listing("Semantics-unaware routing, simulated", "unaware", [asdict(one) for one in simulated])
    check({one.results for one in compared} | {one.results for one in simulated})


if __name__ == "__main__":
    main()
