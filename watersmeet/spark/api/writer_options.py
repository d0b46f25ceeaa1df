"""The options that `writeStream` accepts, with their meaning; the reference lists them."""

from collections.abc import Mapping

OWN_OPTIONS: Mapping[str, str] = {
    "checkpointLocation": "where Spark's progress and the join's state are stored; required",
    "path": "the folder for results, for formats of files and Delta",
    "latePath": "a folder for late tuples, with one subfolder per stream, as for the other four",
    "rejectedPath": "a folder for rejected rows; see docs/semantics.md",
    "deniedPath": "a folder for rows that contradict a constraint; see docs/metadata.md",
    "orphanPath": "a folder for orphans; see docs/metadata.md",
    "punctuationPath": "a folder for punctuations of the output; see docs/metadata.md",
    "samples": "the columns that `progress` shows of a few late, rejected and denied rows: `all` (the default), `none` "
    "or a list such as `id, name`; samples stay in the checkpoint for 500 batches",
    "nearMisses": "how many near-misses `progress` shows of each condition and batch, by default 0; see docs/asking.md",
    "lateWarning": "the share of a stream's rows that must be late for a warning, by default 0.05; see "
    "docs/semantics.md",
    "exchange": "how a batch's job runs: `driver` (the default on `local[...]`), `local` or `shuffle` (the default "
    "on a cluster); see docs/architecture.md",
    "openBytes": "how much state a process keeps open, such as `512 MB`; by default a share of the host's memory; see "
    "docs/cluster.md",
    "final": "`true` to close everything for good once `availableNow` has read all there is; by default `false`; see "
    "docs/outer-joins.md",
    "durable": "`true` (the default), or `false` to skip flushing writes to disk; see docs/guarantees.md",
}
"""The options of a join. Any other is an option of the format."""
CONSOLE_OPTIONS: Mapping[str, str] = {
    "numRows": "how many results of a batch are printed, by default 20",
    "truncate": "`true` (the default) to cut long values, or `false`",
}
"""The options of the format `console`, as in Spark."""
