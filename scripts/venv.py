"""Make a virtual environment, or say in one sentence what is missing."""

import subprocess
import sys

if sys.version_info < (3, 11):  # noqa: UP036  (whoever runs it may have an older one)
    sys.exit(f"Watersmeet needs Python 3.11 or newer; this is {sys.version.split()[0]}. Set PYTHON=python3.11.")
if subprocess.run([sys.executable, "-m", "venv", sys.argv[1]], check=False).returncode:
    sys.exit("This Python can't make a virtual environment: install its venv module (Debian: python3-venv).")
