"""Join many live streams at once, under any predicate, on Apache Spark."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from watersmeet.adapt.auto import Auto
from watersmeet.errors import DefinitionError, DefinitionWarning, PredicateError, SqlError, StateError, WatersmeetError
from watersmeet.model.asof import asof
from watersmeet.model.declared import between, clustered, foreign_key, key, ordered, punctuations
from watersmeet.model.windows import count, hopping, tumbling
from watersmeet.placement import ATR, CTR, DSJ, PSP, Central, Hash
from watersmeet.predicate.python import predicate
from watersmeet.spilling import Spill

if TYPE_CHECKING:
    from watersmeet.spark.advise import advise
    from watersmeet.spark.define import join
    from watersmeet.spark.join import Join
    from watersmeet.spark.running import JoinQuery
    from watersmeet.spark.sql_statement import sql
    from watersmeet.spark.stream import stream, table

__version__ = "0.1.0"

__all__ = [
    "ATR",
    "CTR",
    "DSJ",
    "PSP",
    "Auto",
    "Central",
    "DefinitionError",
    "DefinitionWarning",
    "Hash",
    "Join",
    "JoinQuery",
    "PredicateError",
    "Spill",
    "SqlError",
    "StateError",
    "WatersmeetError",
    "advise",
    "asof",
    "between",
    "clustered",
    "count",
    "foreign_key",
    "hopping",
    "join",
    "key",
    "ordered",
    "predicate",
    "punctuations",
    "sql",
    "stream",
    "table",
    "tumbling",
]

_ON_SPARK = {
    "Join": "join",
    "JoinQuery": "running",
    "advise": "advise",
    "join": "define",
    "sql": "sql_statement",
    "stream": "stream",
    "table": "stream",
}
"""What needs Spark, and where it is: imported when it is first named, so that the core can do without."""


def __getattr__(name: str) -> Any:
    if name not in _ON_SPARK:
        raise AttributeError(f"module 'watersmeet' has no attribute '{name}'")
    return getattr(import_module(f"watersmeet.spark.{_ON_SPARK[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
