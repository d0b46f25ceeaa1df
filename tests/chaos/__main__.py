"""`python -m tests.chaos --seconds 900`: a join and its mishaps; what comes out is exact, or refused in a sentence."""

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.chaos.mishaps import MISHAPS
from tests.chaos.round import Round, Wrong


def main(arguments: list[str] | None = None) -> int:
    """Run rounds of mishaps; 1 if one of them went wrong."""
    parser = argparse.ArgumentParser("python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on")
    parser.add_argument("--seed", type=int, help="run the round of this seed only")
    parser.add_argument("--only", default="", help=f"mishaps to choose from: {', '.join(MISHAPS)}")
    options = parser.parse_args(arguments)
    chosen = [name for name in options.only.split(",") if name] or list(MISHAPS)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
    end, counts, wrong = time.monotonic() + options.seconds, Counter[str](), list[int]()
    while time.monotonic() < end:
        if not _round(seed, chosen, counts):
            wrong.append(seed)
        if options.seed is not None:
            break
        seed += 1
    print("\n" + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    if wrong:
        print(f"{len(wrong)} rounds went wrong: run again with --seed {' or '.join(map(str, wrong))}")
    return 1 if wrong else 0


def _round(seed: int, chosen: list[str], counts: Counter[str]) -> bool:
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as folder:
        going = Round(Path(folder), random.Random(seed))
        try:
            going.play([MISHAPS[going.rng.choice(chosen)] for _ in range(going.rng.randint(2, 5))])
        except Wrong as error:
            print(f"seed {seed}: WRONG: {error}\n  " + "\n  ".join(going.story), flush=True)
        except Exception:
            print(f"seed {seed}: BROKEN\n{traceback.format_exc()}\n  " + "\n  ".join(going.story), flush=True)
        else:
            print(f"seed {seed}: exact after " + "; ".join(going.story), flush=True)
            counts.update(going.counts)
            counts["rounds exact"] += 1
            return True
        counts["rounds wrong"] += 1
        return False


if __name__ == "__main__":
    sys.exit(main())
