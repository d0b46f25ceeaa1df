"""Results in PostgreSQL, each once however often its batch is written: `_id` is the primary key.

Needs `pip install psycopg`, on the driver and on all executors.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from pyspark.sql import DataFrame, Row

BLOCK = 1000
"""How many rows are sent at a time."""


def upsert(connection: str, table: str) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that inserts results which are not there yet.

    A transaction for each partition: after a crash some of a batch may be there. It is then run again with the same
    ids, and what is there already is left alone.

    Args:
        connection: How to connect, such as `host=... user=... dbname=...`.
        table: The table; its columns are named like those of the results, and `_id` is its primary key.
    """

    def insert(rows: Iterable[Row]) -> None:
        import psycopg
        from psycopg import sql

        left = iter(rows)
        with psycopg.connect(connection) as database, database.cursor() as cursor:
            while block := list(islice(left, BLOCK)):
                names = [sql.Identifier(name) for name in block[0].asDict()]
                text = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (_id) DO NOTHING").format(
                    sql.Identifier(table),
                    sql.SQL(", ").join(names),
                    sql.SQL(", ").join([sql.Placeholder()] * len(names)),
                )
                cursor.executemany(text, [tuple(row) for row in block])

    def write(frame: DataFrame, batch: int) -> None:
        frame.foreachPartition(insert)

    return write
