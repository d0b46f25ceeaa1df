"""Fetch what the servers and Spark need from the package registries, once."""

import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from examples.servers.fetch import MissingTool, maven, once, run

HERE = Path(__file__).parent
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
    return once(
        f"hdfs-{hadoop_version()}",
        lambda to: _mvn("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={to}"),
    )


def s3a_jars() -> Path:
    """The folder with the jars that Spark needs for s3a://."""
    return once(
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
    return once(
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
        run(sys.executable, "-m", "venv", str(to))
        pip = (str(to / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, f"moto[s3]=={MOTO}", "flask", "flask-cors")

    return once(f"moto-{MOTO}", install) / "bin" / "python"


def _mvn(*arguments: str) -> None:
    try:
        maven(*arguments, what="jars")
    except MissingTool as missing:
        pytest.skip(str(missing))
