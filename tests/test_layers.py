"""The core can be imported where there is no Spark: simulators and tests need none."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import watersmeet

SPARK = ("watersmeet.spark", "watersmeet.cli")
CODE = """
import importlib, sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
for name in sys.argv[1:]:
    importlib.import_module(name)
"""

ALONE = """
import importlib, sys, types
for name in sys.argv[2:]:
    print(name, file=sys.stderr)
    for known in [known for known in sys.modules if known.startswith("watersmeet")]:
        del sys.modules[known]
    sys.modules["watersmeet"] = types.ModuleType("watersmeet")
    sys.modules["watersmeet"].__path__ = [sys.argv[1]]
    importlib.import_module(name)
"""


def test_the_core_needs_no_spark() -> None:
    found = pkgutil.walk_packages([str(Path(watersmeet.__file__).parent)], "watersmeet.")
    core = [module.name for module in found if not module.name.startswith(SPARK)]
    assert len(core) > 90
    done = subprocess.run([sys.executable, "-c", CODE, "watersmeet", *core], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_each_package_can_be_imported_first() -> None:
    """No package works only because another was imported before it."""
    packages = [module.name for module in pkgutil.iter_modules(watersmeet.__path__, "watersmeet.") if module.ispkg]
    assert len(packages) > 10
    command = [sys.executable, "-c", ALONE, *watersmeet.__path__, *packages]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_what_needs_spark_is_found_when_it_is_named() -> None:
    assert set(watersmeet.__all__) <= set(dir(watersmeet))
    assert all(getattr(watersmeet, name) is not None for name in watersmeet.__all__)
    assert not hasattr(watersmeet, "joins")
