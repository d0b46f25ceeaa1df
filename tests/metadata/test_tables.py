"""Tables of marks as files, and what a process keeps open of them."""

from pathlib import Path

import pyarrow as pa

from tests.state.store.test_store import is_mapped
from watersmeet.metadata.denial import OPEN_MARKS, open_marks, write_table
from watersmeet.metadata.marks import MarkShape, build_table
from watersmeet.state.store.store import Store


def test_tables_whose_files_are_gone_do_not_stay_mapped(tmp_path: Path) -> None:
    store, shape = Store(str(tmp_path)), MarkShape((pa.int64(),), (False,))
    values = pa.array(range(1000))
    table = build_table(shape, [values], [values], 0)
    files = [write_table(store, name, table) for name in ("kept", "gone")]
    for file in files:
        open_marks(store, file, shape)
    (tmp_path / files[1].path).unlink()
    OPEN_MARKS.forget_missing()
    assert [is_mapped(file.path) for file in files] == [True, False]
