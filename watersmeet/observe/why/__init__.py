"""Why tuples did or did not join: a question about tuples, and an answer from what was stored or written.

`question.py` turns a question into one `TupleSelector` a stream; `why_pair.py`, the way in, answers it: `Evidence`
(`evidence.py`) finds the tuples and decides what became of each combination; with optional streams,
`optional_outcome.py` does. `ConditionTracer` (`condition_trace.py`) runs its tests. `state_evidence.py` draws on a
checkpoint: its state (`join_state.py`), partners there (`state_partners.py`), output files (`output_files.py`), and
`why.json` (`why_file.py`) instead of the program. Spark's evidence from static frames is in `watersmeet/spark/api/`.
`answer.py` holds what comes out, `partner_text.py` words what it says of partners.

Nothing here changes a checkpoint. Tests are run by the join's own hops and filters, never by a second definition of
a join. What can't be determined is `unknown`, never FALSE; "not joined" is only said where no later batch can join.
"""
