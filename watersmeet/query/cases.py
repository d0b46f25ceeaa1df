"""Cases of joins with an optional stream: a combination whose outcome hangs on pairs that only Spark can decide.

A case is a claim, which is a result if none of its pairs holds, or if some does, and these pairs: the combination with
each partner that it may have. All of a case have one number, which no other case of the batch has. In as-of joins the
pairs are candidates: the newest that holds is the result, and a claim is one if none does.
"""

import pyarrow as pa

CASE, ROLE, WHOLE = "case", "role", "whole"
"""The columns that say so of combinations which Spark has to decide: the case, if it is of one; what it is in it; and
whether it has a tuple of the optional stream."""
NONE, SOME, PAIR, CANDIDATE = 0, 1, 2, 3
"""Roles: a claim that no pair of the case holds, a claim that some does, a pair, and a pair that is a result if it is
the newest that holds."""
NEWEST, CONTENT = "newest", "content"
"""The columns that say how new the partner of a candidate is: its time, and of equal times its content hash."""
FIELDS = (pa.field(CASE, pa.int64()), pa.field(ROLE, pa.int64()), pa.field(WHOLE, pa.bool_()))
AS_OF_FIELDS = (pa.field(NEWEST, pa.int64()), pa.field(CONTENT, pa.int64()))
