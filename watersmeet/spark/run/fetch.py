"""Rows on their way from Spark to the driver's Python: all of them, or an error."""

import struct

import pyarrow as pa
from pyspark.sql import DataFrame

from watersmeet.errors import StateError

CUT_SHORT = (
    "Spark closed the connection before all rows had come to the driver: an earlier error in its log, such as "
    "OutOfMemoryError, says why; start again once that is fixed, or with more spark.driver.memory."
)


def fetch_all(frame: DataFrame) -> pa.Table:
    """Run a job and return all its rows.

    [!] Never by `collect()`, nor by what is made of it (`take`, `first`, `head`): when the JVM runs out of memory while
    it sends rows, PySpark takes the closed connection for their end, and returns fewer. `toArrow()` has them counted.

    Raises:
        StateError: If some did not come.
    """
    try:
        return frame.toArrow()
    except (EOFError, struct.error, pa.ArrowInvalid):
        raise StateError(CUT_SHORT) from None
