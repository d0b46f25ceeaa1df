"""All differences between the versions of PySpark that Watersmeet runs on."""

import re
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import types as T
from pyspark.sql.pandas import types as arrow

SPARK = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


def to_arrow_schema(kind: T.StructType) -> pa.Schema:
    """Return a schema in Arrow, with times in UTC."""
    zone: dict[str, Any] = {"timezone": "UTC"} if SPARK >= (4, 2) else {}  # before that, it was UTC for all
    return arrow.to_arrow_schema(kind, **zone)


def describe_jar_mismatch(error: BaseException) -> str | None:
    """Return that a jar is for another version of Spark if that caused an error; otherwise None.

    >>> describe_jar_mismatch(RuntimeError(": java.lang.NoSuchMethodError: 'int f()'"))[:44]
    'a jar is for another version of Spark than 4'
    """
    match = re.search(r"java\.lang\.(?:NoSuchMethod|NoSuchField|NoClassDefFound|AbstractMethod)Error: (.*)", str(error))
    if match is None:
        return None
    message = f"a jar is for another version of Spark than {pyspark.__version__}, which has no {match[1].strip()}"
    return f"{message} (docs/versions.md says what goes together)"
