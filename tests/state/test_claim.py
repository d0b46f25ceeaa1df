"""A store belongs to one query."""

import tarfile
from pathlib import Path

import pytest

from tests.state.test_manifest import chain
from watersmeet.errors import DefinitionError, StateError
from watersmeet.state import sealed
from watersmeet.state.claim import DESCRIPTION, claim
from watersmeet.state.store import Store

QUERY = {"where": "a.x < b.x", "streams": ["a", "b"]}
FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_a_store_keeps_its_name(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    name = claim(store, QUERY)
    assert len(name) == 8 and claim(store, QUERY) == name
    assert claim(Store(str(tmp_path / "other")), QUERY) != name


def test_another_query_is_told_what_changed(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    claim(store, QUERY)
    with pytest.raises(DefinitionError, match=r"where was 'a.x < b.x' and is now missing; n was missing and is now 1"):
        claim(store, {"streams": ["a", "b"], "n": 1})


@pytest.mark.parametrize("body", [b"{}", b"null", b"watersmeet 4 0 {}"])
def test_a_damaged_description_is_an_error(tmp_path: Path, body: bytes) -> None:
    store = Store(str(tmp_path))
    store.write(DESCRIPTION, body)
    with pytest.raises(StateError, match=r"The description of the query, .*/query.json, is damaged"):
        claim(store, QUERY)
    assert (tmp_path / DESCRIPTION).read_bytes() == body


def test_state_without_a_description_is_an_error(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    chain(store, 1)
    with pytest.raises(StateError, match=r"There is state under .*, but no query.json"):
        claim(store, QUERY)
    assert not (tmp_path / DESCRIPTION).exists()


def test_another_format_is_told_apart_from_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    claim(store, QUERY)
    monkeypatch.setattr(sealed, "FORMAT", sealed.FORMAT + 1)
    with pytest.raises(StateError, match=f"is of format {sealed.FORMAT - 1}, and this version of Watersmeet reads"):
        claim(store, QUERY)


@pytest.mark.parametrize("archive", sorted(FIXTURES.glob("checkpoint-format-*.tar.gz")), ids=lambda path: path.stem)
def test_checkpoints_of_earlier_versions_are_refused_in_a_sentence(tmp_path: Path, archive: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StateError, match="an earlier version of Watersmeet wrote it"):
        claim(Store(str(tmp_path / "watersmeet")), QUERY)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
