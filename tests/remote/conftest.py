"""Real stores on loopback, one of each for the whole test run."""

import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.remote import packages, servers

HOW = "needs the packages of `pip install watersmeet[cloud,hdfs]`"


@dataclass(frozen=True)
class S3:
    """Where the S3 is, for Python and for Spark."""

    endpoint: str
    bucket: str

    @property
    def environment(self) -> dict[str, str]:
        """What obstore reads."""
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    @property
    def spark(self) -> dict[str, str]:
        """What Spark needs for s3a://, before its JVM starts."""
        classes = f"{packages.s3a_jars()}/*"
        return {
            "spark.driver.extraClassPath": classes,
            "spark.executor.extraClassPath": classes,
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.access.key": "test",
            "spark.hadoop.fs.s3a.secret.key": "test",
        }


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an HDFS."""
    pytest.importorskip("hdfs_native", reason=HOW)
    with servers.hdfs(tmp_path_factory.mktemp("hdfs")) as port:
        yield f"hdfs://127.0.0.1:{port}"


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3 with one empty bucket."""
    pytest.importorskip("obstore", reason=HOW)
    with servers.s3(tmp_path_factory.mktemp("s3")) as port:
        store = S3(f"http://127.0.0.1:{port}", "bucket")
        urllib.request.urlopen(urllib.request.Request(f"{store.endpoint}/{store.bucket}", method="PUT")).close()
        yield store
