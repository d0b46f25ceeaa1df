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


def test_the_core_needs_no_spark() -> None:
    found = pkgutil.walk_packages([str(Path(watersmeet.__file__).parent)], "watersmeet.")
    core = [module.name for module in found if not module.name.startswith(SPARK)]
    assert len(core) > 90
    done = subprocess.run([sys.executable, "-c", CODE, "watersmeet", *core], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_each_package_can_be_imported_first() -> None:
    """No package works only because another was imported before it."""
    packages = [module.name for module in pkgutil.iter_modules(watersmeet.__path__, "watersmeet.") if module.ispkg]
    code = "import sys, types\nsys.modules['watersmeet'] = m = types.ModuleType('watersmeet')\n"
    for name in packages:
        start = f"{code}m.__path__ = {list(watersmeet.__path__)!r}\nimport {name}"
        done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True)
        assert not done.returncode, f"{name}: {done.stderr}"


def test_what_needs_spark_is_found_when_it_is_named() -> None:
    assert set(watersmeet.__all__) <= set(dir(watersmeet))
    assert all(getattr(watersmeet, name) is not None for name in watersmeet.__all__)
    assert not hasattr(watersmeet, "joins")
