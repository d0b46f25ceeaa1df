"""Fetch what the servers and Spark need from the package registries, once."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

HERE = Path(__file__).parent
CACHE = Path.home() / ".cache" / "watersmeet-tests"
MOTO = "5.2.5"
DELTA = "4.4.0"
"""The newest Delta whose jars there are; for Spark 4.1 and 4.2."""
# Spark brings its own, most of them newer.
IN_SPARK = "io.netty,org.slf4j,commons-codec,commons-logging,org.apache.httpcomponents"


def spark_jars() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def hadoop_version() -> str:
    """The version of Hadoop that PySpark ships."""
    (jar,) = spark_jars().glob("hadoop-client-api-*.jar")
    return re.sub(r"hadoop-client-api-(.*)\.jar", r"\1", jar.name)


def minicluster() -> Path:
    """The folder with Hadoop's servers."""
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("needs a JDK (Debian: openjdk-17-jdk-headless) to start HDFS from its source file")
    artifact = f"org.apache.hadoop:hadoop-client-minicluster:{hadoop_version()}"
    return _once(
        f"hdfs-{hadoop_version()}",
        lambda to: _mvn("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={to}"),
    )


def s3a_jars() -> Path:
    """The folder with the jars that Spark needs for s3a://."""
    return _once(
        f"s3a-{hadoop_version()}",
        lambda to: _mvn(
            "dependency:copy-dependencies",
            f"-f{HERE / 's3a.xml'}",
            f"-Dhadoop.version={hadoop_version()}",
            "-DincludeScope=runtime",
            f"-DexcludeGroupIds={IN_SPARK}",
            f"-DoutputDirectory={to}",
        ),
    )


def delta_jars(spark: str) -> Path:
    """The folder with Delta's jars for a version of Spark."""
    return _once(
        f"delta-{DELTA}-spark-{spark}",
        lambda to: _mvn(
            "dependency:copy-dependencies",
            f"-f{HERE / 'delta.xml'}",
            f"-Dspark.version={spark}",
            f"-Ddelta.version={DELTA}",
            "-DincludeScope=runtime",
            "-DincludeGroupIds=io.delta",
            f"-DoutputDirectory={to}",
        ),
    )


def moto_python() -> Path:
    """A Python with moto: an environment apart, as moto needs older versions than requirements.lock has."""

    def install(to: Path) -> None:
        _run(sys.executable, "-m", "venv", str(to))
        pip = (str(to / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _run(*pip, f"moto[s3]=={MOTO}", "flask", "flask-cors")

    return _once(f"moto-{MOTO}", install) / "bin" / "python"


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of that name in the cache; made if it is not there yet, whole or not at all."""
    folder = CACHE / name
    done = folder / ".done"
    if done.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    make(folder)
    done.touch()
    return folder


def _mvn(*arguments: str) -> None:
    if shutil.which("mvn") is None:
        pytest.skip("needs Maven (Debian: maven) to fetch jars")
    _run("mvn", "--quiet", "--batch-mode", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-2000:]}")
