"""What differs between the versions of PySpark that Watersmeet runs on; all of it is here."""

import re
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import types as T
from pyspark.sql.pandas import types as arrow

SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def to_arrow_schema(kind: T.StructType) -> pa.Schema:
    """Return columns in Arrow's terms, with times in UTC."""
    zone: dict[str, Any] = {"timezone": "UTC"} if SPARK >= (4, 2) else {}  # before that, it was UTC for all
    return arrow.to_arrow_schema(kind, **zone)


def misfit(error: BaseException) -> str | None:
    """Return that a jar is for another version of Spark, if that is why something failed.

    >>> misfit(RuntimeError(": java.lang.NoSuchMethodError: 'int f()'"))[:44]
    'a jar is for another version of Spark than 4'
    """
    found = re.search(r"java\.lang\.(?:NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod)Error: (.*)", str(error))
    if found is None:
        return None
    says = f"a jar is for another version of Spark than {pyspark.__version__}, which has no {found[1].strip()}"
    return f"{says} (docs/versions.md says what goes together)"
