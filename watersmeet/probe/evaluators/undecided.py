"""Which combinations Spark has yet to decide: those of an opaque conjunct, and those too close to call."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from watersmeet.probe.evaluators.near import Comparisons
from watersmeet.probe.evaluators.sql import Sql
from watersmeet.probe.partials import Partials
from watersmeet.query.query import Query


@dataclass(frozen=True, slots=True)
class Undecided:
    """Tells combinations that are pending from results.

    Attributes:
        query: The join.
        sql: Evaluates conjuncts in SQL.
        comparisons: Evaluates those of real numbers.
    """

    query: Query
    sql: Sql
    comparisons: Comparisons

    def mask(self, block: Partials) -> NDArray[np.bool_]:
        """Return which combinations Spark has to decide; the others are results.

        Combinations of the required streams alone are judged by the conjuncts over these.
        """
        if self.query.needs_spark:
            return np.full(
                len(block), any(conjunct.streams <= {*block.joined} for conjunct in self.query.deferred_conjuncts)
            )
        found = np.zeros(len(block), dtype=bool)
        for conjunct in self.query.conjuncts:
            if not conjunct.exact and conjunct.streams <= {*block.joined}:
                evaluator = self.comparisons if conjunct.near else self.sql
                found[evaluator.unsure(block, conjunct)] = True
        return found
