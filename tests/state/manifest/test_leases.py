"""Whether a process that was written down still runs."""

import json
import subprocess
import sys

import pytest

from watersmeet.state.manifest import leases
from watersmeet.state.manifest.leases import is_running, this_process

CHILD = """
import json, sys
from watersmeet.state.manifest.leases import this_process
print(json.dumps(this_process()), flush=True)
sys.stdin.readline()
"""


def test_this_process_runs_and_another_of_its_number_does_not() -> None:
    here = this_process()
    assert is_running(here) is True
    assert is_running({**here, "born": "0"}) is False


def test_a_killed_process_is_gone_before_anybody_asks_for_its_exit_code() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        process = json.loads(child.stdout.readline())
        assert is_running(process) is True
        child.kill()
        assert child.stdout.read() == ""  # it has ended
        while is_running(process):
            pass
        assert child.returncode is None and is_running(process) is False
    assert is_running(process) is False


def test_processes_of_other_hosts_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    here = this_process()
    assert is_running({**here, "host": "another"}) is None and is_running({}) is None
    monkeypatch.setattr(leases, "host_id", lambda: None)
    assert is_running({**here, "host": None}) is None
