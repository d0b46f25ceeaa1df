"""Arrow and malloc reserve little where address space is limited."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import pyarrow as pa
from watersmeet.state.store.budget import address_space, save_address_space
if sys.argv[1] == "limited":
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
save_address_space()
print(pa.default_memory_pool().backend_name, address_space() is not None)
"""


@pytest.mark.parametrize(("limit", "output"), [("limited", "system True"), ("free", "mimalloc False")])
def test_arrow_takes_memory_as_malloc_gives_it(limit: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    process = subprocess.run([sys.executable, "-c", PROGRAM, limit], capture_output=True, text=True)
    assert process.stdout.strip() == output
