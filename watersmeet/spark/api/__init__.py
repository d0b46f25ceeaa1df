"""What `watersmeet` exports for Spark, from frames to running joins.

Layers, each importing only those below it:

- `define` (`wm.join` and the `Join` it returns);
- `writer` (`join.writeStream`), `advise` (`wm.advise`, `join.check`), `why_static` (`join.why`), `output_columns`;
- `join_query` (the handle of a running join), `samples`, `why_optional`, `spill`;
- `stream` (`wm.stream`, `wm.table`), `why_running` (`query.why`);
- `definition` (a join before it runs: what all of these work on), `constraint_resolver`;
- `user_frames` (checks of frames), `writer_options`.

Names in arguments are resolved here: everything below `spark` knows streams and columns by position.
"""
