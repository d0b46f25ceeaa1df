"""Arrow's types as Spark calls them."""

import pyarrow as pa
import pytest

from watersmeet.predicate.types import spark_column, spark_name

INNER = pa.struct([("a b", pa.list_(pa.field("element", pa.timestamp("us")))), ("m", pa.map_(pa.string(), pa.int8()))])
NAMES = [
    (pa.int64(), "bigint"),
    (pa.large_string(), "string"),
    (pa.timestamp("us"), "timestamp_ntz"),
    (pa.timestamp("us", "Europe/Berlin"), "timestamp"),
    (pa.decimal128(10, 2), "decimal(10,2)"),
    (pa.date32(), "date"),
    (pa.bool_(), "boolean"),
    (pa.float32(), "float"),
    (pa.duration("us"), "interval day to second"),
    (pa.struct([]), "struct<>"),
    (pa.large_list(pa.large_binary()), "array<binary>"),
    (pa.list_(pa.field("element", pa.int32(), nullable=False)), "array<int>"),
    (pa.map_(pa.string(), pa.decimal128(5, 1)), "map<string,decimal(5,1)>"),
    (INNER, "struct<a b:array<timestamp_ntz>,m:map<string,tinyint>>"),
    (pa.uint8(), "uint8"),
]


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_types_have_the_names_that_people_know(kind: pa.DataType, name: str) -> None:
    assert spark_name(kind) == name
    for column in ("x", "placed at", "int64 in", "list<x>"):
        assert spark_column(f"{column} {kind}") == f"{column} {name}"


def test_what_is_no_column_stays_as_it_is() -> None:
    assert spark_column("nothing") == "nothing"
