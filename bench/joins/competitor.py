"""Run one competitor in this process and print one JSON line: seconds, rows, peak memory.

python -m bench.joins.competitor dummy-key --files FOLDER --out FOLDER --epsilon 5
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from bench import measurement
from bench.common import Task, session
from bench.joins import references

IN_PROCESS = {
    "duckdb": references.duckdb_band,
    "numpy": references.numpy_band,
    "numpy-images": references.numpy_images,
}


def prepare(name: str, task: Task, settings: Mapping[str, str]) -> Callable[[], None]:
    """What to time: the join alone, with the Spark session it needs already there."""
    if name in IN_PROCESS:
        return partial(IN_PROCESS[name], task)
    from bench.joins.baselines import COMPETITORS
    from bench.joins.ours import OURS

    competitor = (COMPETITORS | OURS)[name]
    return partial(competitor.join, session({**competitor.settings, **settings}), task)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run, print."""
    parser = measurement.arguments(__doc__)
    parser.add_argument("name", help="dummy-key, buckets, images-udf, duckdb, numpy or numpy-images")
    parser.add_argument("--epsilon", type=float, default=0.0, help="width of the band")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting to override")
    parser.add_argument("--warm", type=int, default=0, help="how often to run before, in the same session, untimed")
    options = parser.parse_args(arguments)
    task = Task(options.files.resolve(), options.out.resolve(), options.epsilon)
    settings = dict(setting.split("=", 1) for setting in options.set)
    for number in range(options.warm):
        prepare(options.name, replace(task, out=task.out.with_name(f"{task.out.name}-warm-up-{number}")), settings)()
    measurement.measure(task.out, prepare(options.name, task, settings))


if __name__ == "__main__":
    main()
