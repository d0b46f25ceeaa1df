"""Cases of joins with an optional stream: a combination whose results depend on pairs that only Spark can decide.

A case consists of a claim, which is a result if none of its pairs holds (or if some does), and of these pairs: the
combination with each possible partner. They share a number that is unique in the batch. In as-of joins the pairs are
candidates: the newest that holds is the result, and the claim is if none does.
"""

import pyarrow as pa

CASE, ROLE, WHOLE = "case", "role", "whole"
"""Columns of combinations that Spark must decide: the number of the case, if any; the role in it; and whether there is
a tuple of the optional stream."""
NONE, SOME, PAIR, CANDIDATE = 0, 1, 2, 3
"""Roles: a claim that no pair holds, a claim that some does, a pair, and a pair that is a result if it is the newest
that holds."""
NEWEST, CONTENT = "newest", "content"
"""Columns that rank the partner of a candidate: its time and, among equal times, its content hash."""
FIELDS = (pa.field(CASE, pa.int64()), pa.field(ROLE, pa.int64()), pa.field(WHOLE, pa.bool_()))
AS_OF_FIELDS = (pa.field(NEWEST, pa.int64()), pa.field(CONTENT, pa.int64()))
