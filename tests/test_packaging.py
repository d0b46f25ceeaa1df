"""The wheel works where nothing else is, and making it leaves nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import watersmeet as wm

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import sys
import watersmeet as wm
from watersmeet.testing import check_strategy
check_strategy(wm.PSP(2), wm.Hash(2), rounds=3)
assert "pyspark" not in sys.modules
print(wm.__file__)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    bare = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=bare, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.strip()


def environment(folder: Path, *packages: str | Path) -> Path:
    """Make a fresh environment with packages; return where its programs are."""
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return folder / "bin"


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment(tmp_path: Path) -> None:
    before = sorted(os.listdir(ROOT))
    run(environment(tmp_path / "builder", "build") / "python", "-m", "build", "--outdir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    programs = environment(tmp_path / "clean", "-c", ROOT / "requirements.lock", wheel)
    assert Path(run(programs / "python", "-c", PROGRAM, cwd=tmp_path)).is_relative_to(tmp_path / "clean")
    for command in ([programs / "watersmeet"], [programs / "python", "-m", "watersmeet"]):
        assert run(*command, "--version", cwd=tmp_path) == f"watersmeet {wm.__version__}"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", ROOT, cwd=tmp_path)
    assert sorted(os.listdir(ROOT)) == before
