"""Write requirements.lock: the exact versions that a fresh install of `watersmeet[dev]` resolves to today."""

import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parent.parent
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = f"{folder}/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{root}[dev]"], check=True)
    frozen = subprocess.run(
        [python, "-m", "pip", "freeze", "--exclude", "watersmeet"], check=True, capture_output=True, text=True
    )
(root / "requirements.lock").write_text("# Written by `make lock`; do not edit.\n" + frozen.stdout)
