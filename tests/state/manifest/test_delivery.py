"""Deliveries, as manifests hold them."""

from dataclasses import replace
from pathlib import Path

import pytest

from watersmeet.errors import StateError
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.delivery import STAGING, Delivery
from watersmeet.state.manifest.manifest import Manifest
from watersmeet.state.store.store import Store

DELIVERY = Delivery(
    "path", ("s3a://b/x", "s3://b/x"), (("results/r-0", "part-0"), (f"{STAGING}/1/k=a/p", "k=a/part-1"))
)


def test_a_manifest_names_what_is_to_be_delivered_and_the_next_one_does_not(tmp_path: Path) -> None:
    store, start = Store(str(tmp_path)), Manifest(-1, ())
    first = manifests.publish(store, replace(start.follow(), deliveries=(DELIVERY,)), start)
    assert first is not None and manifests.load(store, 0) == first
    assert first.deliveries[0].stored == ["results/r-0"]
    second = manifests.publish(store, replace(first.follow(), deliveries=()), first)
    assert second is not None and manifests.load(store, 1) == second and second.deliveries == ()


@pytest.mark.parametrize(
    "move", [("chunks/c", "part-0"), ("results/../../x", "part-0"), ("results/x", "../x"), ("/etc/passwd", "x")]
)
def test_what_is_no_file_of_an_output_is_refused(move: tuple[str, str]) -> None:
    with pytest.raises(StateError, match="which are not files of an output; restore the manifest or start a new"):
        Delivery.from_json(["path", ["/x", "/x"], [move]])
