"""The table of progress fields names each field, and nothing else; `tests/conftest.py` looks at every batch."""

from pathlib import Path

import watersmeet
from docs.progress_fields import FIELDS
from tests.progress_paths import unknown
from watersmeet.adapt.adaptation import StrategyChange

SOURCE = Path(watersmeet.__file__).parent


def test_a_field_that_the_table_lacks_is_noticed() -> None:
    assert unknown({"batchId": 1, "inputRows": {"a": 2}, "nodes": [{"rows": 1}]}) == set()
    assert unknown({"batch": 1, "nodes": [{"row": 1}], "streams": {"a": {"lost": 1}}}) == {
        "batch",
        "nodes[].row",
        "streams.<stream>.lost",
    }
    assert unknown({"inner": {"ab": {"batchId": 1, "batch": 1}}}) == {"batch"}
    assert unknown({"batchId": {"number": 1}, "order": {"a": [["b"]]}}) == {"batchId.number"}


def test_every_field_of_the_table_is_somewhere_in_the_code() -> None:
    code = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    keys = {path.rpartition(".")[2].removesuffix("[]") for path in FIELDS}
    names = {key for key in keys if not key.startswith("<")} - set(StrategyChange._fields)
    assert {name for name in names if f'"{name}"' not in code} == set()


def test_what_holds_fields_is_described_itself() -> None:
    above = {path.rpartition(".")[0] for path in FIELDS if "." in path}
    above = {path.removesuffix("[]") for path in above if not path.endswith(">")}
    assert above <= set(FIELDS)
