"""Where commands find a checkpoint: what its path means to Spark, all commands take it for."""

import doctest
from pathlib import Path

import pytest

from watersmeet.state.store import places
from watersmeet.state.store.places import store_of


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/a/b/", "/a/b/watersmeet"),
        ("/a//b/../c", "/a/c/watersmeet"),
        ("/a b?c%20", "/a b?c%20/watersmeet"),
        ("/a://b", "/a:/b/watersmeet"),
        ("file:///a/b", "/a/b/watersmeet"),
        ("file:/a/b/", "/a/b/watersmeet"),
        ("dbfs:/a", "/dbfs/a/watersmeet"),
        ("s3a://bucket/some where", "s3://bucket/some%20where/watersmeet"),
        ("s3a://bucket", "s3://bucket/watersmeet"),
        ("s3://bucket/x?region=eu", "s3://bucket/x/watersmeet?region=eu"),
        ("s3://bucket?region=eu", "s3://bucket/watersmeet?region=eu"),
        ("abfss://files@mill.dfs.core.windows.net/x/", "abfss://files@mill.dfs.core.windows.net/x/watersmeet"),
    ],
)
def test_checkpoints_are_found_as_spark_spells_them(path: str, root: str) -> None:
    assert store_of(path).root == root


def test_a_relative_path_is_one_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_of("x").root == store_of("./x/").root == f"{tmp_path}/x/watersmeet"


def test_examples_in_docstrings() -> None:
    failed, tried = doctest.testmod(places)
    assert tried and not failed
