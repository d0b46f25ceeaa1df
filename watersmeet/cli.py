"""The command line: `watersmeet advise join.py`, `why`, `watch`, `serve`. It only parses and calls.

A command is a function that adds its arguments (`_add_...`), and one that runs it. What a command needs of Spark it
imports when it runs, so that `--help`, `--version` and live screens answer at once.
"""

import argparse
import importlib.util
import sys
import time
import traceback
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

from watersmeet import __version__
from watersmeet.cost.equations import Goal
from watersmeet.errors import DefinitionError, WatersmeetError
from watersmeet.formatting import sanitize
from watersmeet.observe.serving import serve, watch

if TYPE_CHECKING:
    from watersmeet.spark.api.define import Join


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code: 0, or 2 for our errors, Spark's and the system's, with a sentence on stderr.

    Ctrl-C counts as success; bad arguments end the process with code 2, and any other error is raised.
    """
    options, rest = build_parser().parse_known_args(arguments)
    try:
        if options.run is _why:
            _why(options, rest)
        else:
            _reject_rest(rest)
            options.run(options)
    except (WatersmeetError, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:  # how a live screen is left
        return 0
    except Exception as error:
        from pyspark.errors import PySparkException

        if not isinstance(error, PySparkException):
            raise
        return _fail(_first_line(error))
    return 0


def _fail(sentence: str) -> int:
    print(f"watersmeet: {sanitize(sentence)}", file=sys.stderr)
    return 2


def _first_line(error: Exception) -> str:
    """Return the message of an error, without the frames that Spark adds."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands, from which the reference is generated."""
    parser = argparse.ArgumentParser(prog="watersmeet", description="Join many live streams at once.")
    parser.add_argument("--version", action="version", version=f"watersmeet {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (_add_advise, _add_why, _add_watch, _add_serve):
        add(commands)
    return parser


# -- advise


def _add_advise(commands: Any) -> None:
    """Add the command `advise` and its options to the parser."""
    summary = "predict what a join needs, and recommend a strategy and a number of nodes"
    command = commands.add_parser("advise", help=summary, description=summary)
    command.set_defaults(run=_advise)
    command.add_argument("join", metavar="FILE[:NAME]", help="Python file with a join, or a function that returns one")
    sample = "rows to sample instead of the stream's own: Parquet, ORC, JSON, CSV, Delta"
    command.add_argument("--sample", metavar="STREAM=PATH", action="append", default=[], help=sample)
    command.add_argument("--rate", metavar="STREAM=N", action="append", default=[], help="tuples per second")
    command.add_argument("--max-nodes", metavar="N", type=int, default=16, help="the most nodes to consider")
    goal = "how to choose the number of nodes; by default, the fewest that keep up"
    command.add_argument("--goal", choices=get_args(Goal), help=goal)
    command.add_argument("--every", metavar="TIME", default="1 second", help="time from one batch to the next")
    command.add_argument("--slots", metavar="N", type=int, help="tasks that run at once; by default one per node")
    command.add_argument("--bandwidth", metavar="BYTES", type=float, help="bytes per second that reach a node")
    plot = "file for a plot of the prediction, such as advice.svg; formats other than SVG need matplotlib"
    command.add_argument("--plot", metavar="FILE", help=plot)


def _advise(options: argparse.Namespace) -> None:
    """Run the command `advise`: print the advice, and draw it to a file if asked to."""
    from watersmeet.spark.api.advise import advise

    rates = {stream: _parse_rate(stream, rate) for stream, rate in _parse_pairs("--rate", options.rate)}
    advice = advise(
        load(options.join),
        dict(_parse_pairs("--sample", options.sample)),
        rates,
        max_nodes=options.max_nodes,
        goal=options.goal,
        every=options.every,
        slots=options.slots,
        bandwidth=options.bandwidth,
    )
    advice.show()
    if options.plot:
        advice.plot(options.plot)


# -- why


def _reject_rest(rest: Sequence[str]) -> None:
    if rest:
        raise DefinitionError(f"unknown argument: {rest[0]}; --help lists all arguments.")


def _add_why(commands: Any) -> None:
    """Add the command `why` to the parser; the options that name tuples are left to `_why`."""
    summary = "explain what became of tuples, and why they joined or didn't"
    usage = "watersmeet why CHECKPOINT --STREAM COLUMN=VALUE [--STREAM COLUMN=VALUE ...]"
    several = "Several columns of a tuple: --a id=17 --a zone=x, or --a \"id = 17 AND zone = 'x'\"."
    command = commands.add_parser(
        "why", help=summary, description=summary, usage=usage, epilog=several, allow_abbrev=False
    )
    command.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    outputs = "also read results and side outputs, in the folders that the checkpoint names"
    command.add_argument("--read-outputs", action="store_true", help=outputs)
    command.set_defaults(run=_why)


def _why(options: argparse.Namespace, rest: Sequence[str]) -> None:
    from watersmeet.observe.why.why_pair import why_checkpoint

    question = _parse_question(rest)
    print(sanitize(str(why_checkpoint(options.checkpoint, question, time.perf_counter, options.read_outputs))))


def _parse_question(rest: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the values by stream and column in arguments such as `--a id=17`.

    Raises:
        DefinitionError: If an argument has another form.
    """
    values: dict[str, dict[str, Any]] = {}
    words = [word for other in rest for word in (other.split("=", 1) if _is_joined(other) else [other])]
    for option, value in zip_longest(words[::2], words[1::2], fillvalue=""):
        stream, (column, equals, _) = option.removeprefix("--"), value.partition("=")
        if not option.startswith("--") or not (column and equals):
            raise DefinitionError(f"{option} {value}: write it like --STREAM COLUMN=VALUE, such as --a id=17.".strip())
        values.setdefault(stream, {}).update(_parse_values(stream, value))
    return values


def _parse_values(stream: str, text: str) -> dict[str, Any]:
    """Return values by column: of one, as in `zone=x` without quotes, or of several: `id = 17 AND zone = 'x'`.

    Text that can't be read as several conditions is the value of the first column.
    """
    from watersmeet.observe.why.question import parse_values

    column, _, value = text.partition("=")
    single = {column.strip(): value.strip()}
    try:
        pairs = parse_values(stream, text) if " and " in text.lower() else single
    except DefinitionError:  # the word is part of the value
        return single
    return pairs if len(pairs) > 1 else single


def _is_joined(word: str) -> bool:
    """Tell whether a word is an option together with its value: `--a=id=17`."""
    return word.startswith("--") and word.count("=") > 1


# -- live screens


def _add_watch(commands: Any) -> None:
    """Add the command `watch` and its options to the parser."""
    summary = "show a query live in the terminal; reads its checkpoint, and never changes it"
    command = commands.add_parser("watch", help=summary, description=summary)
    command.set_defaults(run=lambda options: watch(options.checkpoint, options.every, options.once))
    command.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    command.add_argument("--every", metavar="SECONDS", type=float, default=1.0, help="time between refreshes")
    command.add_argument("--once", action="store_true", help="print the view once and exit")


def _add_serve(commands: Any) -> None:
    """Add the command `serve` and its options to the parser."""
    summary = "show a query live in a browser, on this host only; prints the address"
    command = commands.add_parser("serve", help=summary, description=summary)
    command.set_defaults(run=_serve)
    command.add_argument("checkpoint", metavar="CHECKPOINT", help="the query's checkpointLocation")
    command.add_argument(
        "--port", metavar="PORT", type=int, default=0, help="port to listen on; by default any free one"
    )


def _serve(options: argparse.Namespace) -> None:
    with serve(options.checkpoint, options.port) as server:
        print(f"{server.address}\nOnly this host can open it, and only with this address. Press Ctrl-C to stop.")
        sys.stdout.flush()
        server.serve_forever()


# -- arguments


def _parse_pairs(option: str, options: Sequence[str]) -> list[tuple[str, str]]:
    """Return options of the form STREAM=VALUE as pairs.

    Raises:
        DefinitionError: If one has another form.
    """
    pairs = [text.partition("=") for text in options]
    for stream, equals, value in pairs:
        if not (stream and equals and value):
            raise DefinitionError(f"{option} {stream}: write it like {option} STREAM=VALUE.")
    return [(stream, value) for stream, _, value in pairs]


def _parse_rate(stream: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DefinitionError(f"--rate {stream}={text}: give a number of tuples per second.") from None


def load(target: str) -> "Join":
    """Run a Python file and return the join that it defines: `FILE`, or `FILE:NAME` if it isn't called `join`.

    [!] A function of that name is called; the file's folder stays on the import path.

    Raises:
        DefinitionError: If the file is missing or fails, or holds no join of that name.
    """
    from watersmeet.spark.api.define import Join

    path, _, name = target.partition(":")
    file, name = Path(path), name or "join"
    if not file.is_file() or file.suffix != ".py":
        raise DefinitionError(f"{path}: there is no such Python file.")
    try:
        definition = getattr(_import_file(file), name, None)
        join = definition() if callable(definition) else definition
    except WatersmeetError:
        raise
    except Exception as error:
        raise DefinitionError(f"{_describe_place(file, error)}: {type(error).__name__}: {_first_line(error)}") from None
    if not isinstance(join, Join):
        raise DefinitionError(f"{path}: '{name}' is not a join made by wm.join, nor a function that returns one.")
    return join


def _import_file(file: Path) -> ModuleType:
    """Run a file as a module, not as `__main__`, so as to start nothing; its folder stays on the import path."""
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _describe_place(file: Path, error: Exception) -> str:
    """Return the file, and its last line in the traceback if it has one there."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}, line {lines[-1]}" if lines else str(file)
