"""What `watersmeet` exports for Spark, from frames to running joins.

Layers, each importing only those below it:

- `define.py` (`wm.join` and the `Join` it returns);
- `writer.py` (`join.writeStream`), `advise.py` (`wm.advise`, `join.check`), `why_static.py` (`join.why`);
- `join_query.py` (the handle of a running join), `samples.py`, `spill.py`;
- `stream.py` (`wm.stream`, `wm.table`), `why_running.py` (`query.why`);
- `definition.py` (a join before it runs: what all of these work on), `constraint_resolver.py`;
- `user_frames.py` (checks of frames).

Names in arguments are resolved here: everything below `watersmeet/spark/` knows streams and columns by position.
"""
