"""Rows that are equal in some columns, found without DuckDB: to start a join there takes longer than a small one."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.arrays import Ints
from watersmeet.metadata.spans import exact, exact_type
from watersmeet.metadata.stored_columns import distinct
from watersmeet.predicate.model import Column, Conjunct
from watersmeet.query.query import Query


def equalities(query: Query, conjuncts: Sequence[Conjunct]) -> list[tuple[Column, Column]] | None:
    """Return the pairs of columns that conjuncts want to be equal; None if one of them is anything else.

    [!] Of one type only: a double equals both 2^53 and 2^53 + 1.
    """
    found = [conjunct.equality for conjunct in conjuncts if conjunct.equality is not None]
    kinds = [(query.type_of(one), query.type_of(other)) for one, other in found]
    exactly = all(one == other and exact_type(one) is not None for one, other in kinds)
    return found if exactly and len(found) == len(conjuncts) else None


def equal_rows(left: Sequence[pa.Array], right: Sequence[pa.Array], most: int) -> tuple[Ints, Ints] | None:
    """Return the pairs of rows that are equal in all columns, as SQL has it; None if there are more than `most`.

    Args:
        left: Columns of the rows on one side; `exact_type` knows their types.
        right: Those on the other, of the same types.
        most: How many pairs are not too many.

    >>> equal_rows([pa.array([7, None, 8])], [pa.array([8, 7, None, 7])], most=10)
    (array([0, 0, 2]), array([1, 3, 0]))
    """
    rows = len(left[0])
    columns = [pa.concat_arrays(pair) for pair in zip(left, right, strict=True)]
    valid = np.logical_and.reduce([pc.is_valid(column).to_numpy(zero_copy_only=False) for column in columns])
    kind = distinct([exact(column) for column in columns], len(valid)).kind
    asked, known = np.flatnonzero(valid[:rows]), np.flatnonzero(valid[rows:])
    known = known[np.argsort(kind[rows + known], kind="stable")]
    of_kind = np.bincount(kind[rows + known], minlength=kind.max(initial=-1) + 1)
    begin, counts = (np.cumsum(of_kind) - of_kind)[kind[asked]], of_kind[kind[asked]]
    if counts.sum() > most:
        return None
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(asked, counts), known[np.repeat(begin, counts) + within]
