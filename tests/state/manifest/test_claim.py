"""A store belongs to one query."""

import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.state.manifest.test_manifest import chain
from watersmeet.errors import DefinitionError, StateError
from watersmeet.state.manifest.claim import DESCRIPTION, claim, differences
from watersmeet.state.manifest.generations import Fence, generation_of
from watersmeet.state.store import file_format
from watersmeet.state.store.file_format import unseal
from watersmeet.state.store.store import Store

QUERY = {"where": "a.x < b.x", "streams": ["a", "b"]}
TOKEN = "0123abcd"
FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_a_store_keeps_its_name(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    name = claim(store, QUERY)
    assert len(name) == 8 and claim(store, QUERY) == name
    assert claim(Store(str(tmp_path / "other")), QUERY) != name


def test_another_query_is_told_what_changed(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    claim(store, QUERY)
    message = r"where was 'a.x < b.x' and is now missing; n was missing and is now 1. .* with a new output folder"
    with pytest.raises(DefinitionError, match=message):
        claim(store, {"streams": ["a", "b"], "n": 1})


LONG = [f"a.c{at} BETWEEN b.lo{at} AND b.hi{at}" for at in range(9)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({"where": "a.x < 3"}, {"where": "a.x < 4"}, "where was 'a.x < 3' and is now 'a.x < 4'"),
        (
            {"where": " AND ".join(LONG), "where, as Spark reads it": "long"},
            {"where": " AND ".join([*LONG[:4], "a.c4 < b.hi4", *LONG[5:]]), "where, as Spark reads it": "longer"},
            "where had 'a.c4 BETWEEN b.lo4 AND b.hi4' where it now has 'a.c4 < b.hi4'",
        ),
        (
            {"where": " AND ".join(LONG)},
            {"where": " AND ".join([*LONG[2:], "a.y = 'it''s, AND more'"])},
            "where now lacks 'a.c0 BETWEEN b.lo0 AND b.hi0', 'a.c1 BETWEEN b.lo1 AND b.hi1' "
            "and adds \"a.y = 'it''s, AND more'\"",
        ),
        (
            {"where": " AND ".join(LONG)},
            {"where": " AND ".join(LONG[::-1])},
            f"where was {' AND '.join(LONG)!r} and is now {' AND '.join(LONG[::-1])!r}",
        ),
        (
            {"where": f"a.x = '{'x ' * 40}1{' y' * 40}'"},
            {"where": f"a.x = '{'x ' * 40}2{' y' * 40}'"},
            "where was '... x x x 1 y y y ...' and is now '... x x x 2 y y y ...'",
        ),
        ({"where": ""}, {"where": " AND ".join(LONG[:2])}, f"where now adds {LONG[0]!r}, {LONG[1]!r}"),
        (
            {"where": "'" + "x" * 80},
            {"where": "a.x"},
            f"where was {chr(34)}'{'x' * 80}{chr(34)} and is now 'a.x'",
        ),
        (
            {"select": f"a.id AS i, {', '.join(LONG)}"},
            {"select": f"a.id AS j, {', '.join(LONG)}"},
            "select was 'a.id AS i, a.c0 BETWEEN b.lo0 ...' and is now 'a.id AS j, a.c0 BETWEEN b.lo0 ...'",
        ),
        (
            {"columns of 'a'": [f"column{at} double" for at in range(9)]},
            {"columns of 'a'": [f"column{at} {'double' if at != 3 else 'float'}" for at in range(9)]},
            "columns of 'a' had 'column3 double' where it now has 'column3 float'",
        ),
        (
            {"columns of 'a'": [f"column{at} timestamp[us]" for at in range(3)]},
            {"columns of 'a'": [f"column{at} timestamp[us]" for at in (2, 0, 1)]},
            "columns of 'a' has the same in another order: "
            "['column2 timestamp_ntz', 'column0 timestamp_ntz', 'column1 timestamp_ntz']",
        ),
        (
            {"columns of 'a'": ["id int64", "ts timestamp[us, tz=UTC]"]},
            {"columns of 'a'": ["id int32", "ts timestamp[us]"]},
            "columns of 'a' was ['id bigint', 'ts timestamp'] and is now ['id int', 'ts timestamp_ntz']",
        ),
        (
            {"computed of 'a'": ["lower(a.k) string"]},
            {"computed of 'a'": ["lower(a.k) large_string"]},
            "computed of 'a' was ['lower(a.k) string'] and is now ['lower(a.k) large_string']",
        ),
        ({"n": 10**70}, {"n": 1}, f"n was {10**70} and is now 1"),
        (
            {"join 'ab'": {"where": "a.x < 3"}},
            {"join 'ab'": {"where": "a.x < 4"}},
            "join 'ab': where was 'a.x < 3' and is now 'a.x < 4'",
        ),
    ],
)
def test_only_what_differs_is_shown(old: dict[str, object], new: dict[str, object], message: str) -> None:
    assert list(differences(old, new)) == [message]


@pytest.mark.parametrize("body", [b"{}", b"null", b"watersmeet 4 0 {}"])
def test_a_damaged_description_is_an_error(tmp_path: Path, body: bytes) -> None:
    store = Store(str(tmp_path))
    store.write(DESCRIPTION, body)
    with pytest.raises(StateError, match=r"The description of the query, .*/query.json, is damaged"):
        claim(store, QUERY)
    assert (tmp_path / DESCRIPTION).read_bytes() == body


@pytest.mark.parametrize("state", ["a manifest", "a fence"])
def test_state_without_a_description_is_an_error(tmp_path: Path, state: str) -> None:
    """[!] Under a new name, results of a batch that was cut would get other ids, and a sink would take them for new."""
    store = Store(str(tmp_path))
    if state == "a manifest":
        chain(store, 1)
    else:
        Fence(generation_of(1, TOKEN), 0).publish(store)
    with pytest.raises(StateError, match=r"There is state under .*, but no query.json.* with a new output folder"):
        claim(store, QUERY)
    assert not (tmp_path / DESCRIPTION).exists()


class Suspended(Store):
    """The store of a run that is suspended once it has read the description, while another one claims the store."""

    def read(self, path: str) -> bytes | None:
        content = super().read(path)
        other = Store(self.root)
        if path == DESCRIPTION and other.read("taken") is None:
            other.write("taken", b"")
            claim(other, QUERY, "/other")
        return content

    def check(self) -> None:
        if super().read("taken") is not None:
            raise StateError("Another run has taken over.")


@pytest.mark.parametrize("before", [None, b"", "claimed"])
def test_a_run_that_has_lost_its_lease_claims_nothing(tmp_path: Path, before: bytes | str | None) -> None:
    """[!] Another name would make the files of the run that has the lease somebody else's."""
    store, suspended = Store(str(tmp_path)), Suspended(str(tmp_path))
    if before == "claimed":
        claim(store, QUERY, "/before")
    elif before is not None:
        store.write(DESCRIPTION, b"")
    with pytest.raises(StateError, match="taken over"):
        claim(suspended, QUERY, "/own", check=suspended.check)
    document = unseal(store.read(DESCRIPTION) or b"", "")
    assert document["output"] == "/other" and claim(store, QUERY, "/other") == document["name"]


def test_another_format_is_told_apart_from_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    claim(store, QUERY)
    monkeypatch.setattr(file_format, "FORMAT", file_format.FORMAT + 1)
    with pytest.raises(
        StateError, match=f"is of format {file_format.FORMAT - 1}, and this version of Watersmeet reads"
    ):
        claim(store, QUERY)


@pytest.mark.parametrize("archive", sorted(FIXTURES.glob("checkpoint-format-*.tar.gz")), ids=lambda path: path.stem)
def test_checkpoints_of_earlier_versions_are_refused_in_a_sentence(tmp_path: Path, archive: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StateError, match=r"an earlier version of Watersmeet wrote it; .* with a new output folder"):
        claim(Store(str(tmp_path / "watersmeet")), QUERY)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_copy_never_writes_where_its_original_does(tmp_path: Path) -> None:
    """[!] Not after it has written elsewhere, either: it would take away the original's results."""
    original, copy = Store(str(tmp_path / "a")), Store(str(tmp_path / "b"))
    name = claim(original, {}, "/out")
    copy.overwrite("query.json", original.read("query.json") or b"")
    with pytest.raises(DefinitionError, match=r"is a copy of the one at .*a, which is still there"):
        claim(copy, {}, "/out")
    assert claim(copy, {}, "/other") == name
    with pytest.raises(DefinitionError, match=r"is a copy of the one at .*a, which is still there"):
        claim(copy, {}, "/out")
    original.remove(["query.json"])
    assert claim(copy, {}, "/out") == name  # it was moved


def test_a_link_to_where_it_was_is_no_copy(tmp_path: Path) -> None:
    """[!] People were told to remove the original, which was all there was."""
    name = claim(Store(str(tmp_path / "a")), {}, "/out")
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a").symlink_to(tmp_path / "b")
    assert claim(Store(str(tmp_path / "b")), {}, "/out") == name


def test_results_in_one_folder_are_laid_out_alike(tmp_path: Path) -> None:
    """[!] Spark passes over files that lie beside partition folders, without a word."""
    store = Store(str(tmp_path))
    name = claim(store, {}, "/out", "parquet")
    with pytest.raises(DefinitionError, match=r"in /out are parquet, and would now be parquet by a: .* another path"):
        claim(store, {}, "/out", "parquet by a")
    assert claim(store, {}, "/other", "parquet by a") == name == claim(store, {}, "/other", "parquet by a")
    with pytest.raises(DefinitionError, match="are parquet by a, and would now be json"):
        claim(store, {}, "/other", "json")


@pytest.mark.parametrize("part", [{"at": "/x\0"}, {"at": "/x", "origins": ["file:/y\0"]}])
def test_what_is_no_path_is_refused_in_a_sentence(tmp_path: Path, part: dict[str, Any]) -> None:
    """Somebody else may have written it; no file system takes it."""
    store = Store(str(tmp_path))
    store.publish(DESCRIPTION, file_format.seal({"name": "0a1b2c3d", "query": QUERY, "output": "/out"} | part))
    with pytest.raises(StateError, match=r"is not as Watersmeet writes it: .* and a path was expected; restore it"):
        claim(store, QUERY, "/out")
