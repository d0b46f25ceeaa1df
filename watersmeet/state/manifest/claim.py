"""A store belongs to one query: what that is stands in it from the first start on, and is compared at every other."""

import os
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from watersmeet.errors import AFRESH, DefinitionError, StateError
from watersmeet.state.manifest import documents
from watersmeet.state.manifest import manifest as manifests
from watersmeet.state.manifest.differences import differences
from watersmeet.state.manifest.generations import Fence, last_fence
from watersmeet.state.store.sealed import seal, unseal
from watersmeet.state.store.store import Store

DESCRIPTION = "query.json"


def claim(store: Store, description: Mapping[str, Any], output: str | None = None, layout: str | None = None) -> str:
    """Claim a store for a query; return the store's name, given to it when it is first claimed.

    Who claims it must hold its lease.

    Args:
        store: The store.
        description: What must not change between two runs.
        output: The folder that results are put in, if they are; it may change.
        layout: How they are laid out there; it may change along with the folder.

    Raises:
        DefinitionError: If it belongs to another query, or results would be laid out in two ways; the message says what
            changed.
        StateError: If what it belongs to is damaged or gone.
    """
    data = store.read(DESCRIPTION)
    # [!] A run that has put up a fence may have delivered results under the store's name, at least once.
    if not data and manifests.newest(store) is None and last_fence(store) == Fence():
        where = {"at": store.root, "output": output, "layout": layout}
        data = _write(store, {"name": uuid.uuid4().hex[:8], "query": description, **where})
    if not data:
        raise StateError(
            f"There is state under {store.root}, but no {DESCRIPTION} to say which query it belongs to; restore it or "
            f"{AFRESH}."
        )
    found = unseal(data, f"The description of the query, {store.root}/{DESCRIPTION},", documents.Claim)
    _compare(store, found["query"], description)
    before = found.get("layout", layout)
    if output is not None and found["output"] == output and before != layout:
        raise DefinitionError(
            f"The results in {output} are {before}, and would now be {layout}: readers take a folder for one thing or "
            "the other. Write to another path, or as before."
        )
    if (found["at"], found["output"], before) != (store.root, output, layout):
        origins = {*found.get("origins", ()), found["at"]} - {store.root}
        _check_copy(store, str(found["name"]), origins, output)
        now = {"at": store.root, "output": output, "layout": layout, "origins": sorted(origins)}
        _write(store, found | now)
    return str(found["name"])


def described(store: Store) -> Mapping[str, Any]:
    """Return the description of the query that a store belongs to; empty if it belongs to none yet.

    Raises:
        StateError: If it is damaged.
    """
    data = store.read(DESCRIPTION)
    found = unseal(data, f"The description of the query, {store.root}/{DESCRIPTION},", documents.Claim) if data else {}
    description: Mapping[str, Any] = found.get("query", {})
    return description


def _write(store: Store, document: Mapping[str, Any]) -> bytes:
    data = seal(document)
    store.overwrite(DESCRIPTION, data)
    store.sync([DESCRIPTION])
    return data


def _check_copy(store: Store, name: str, origins: Collection[str], output: str | None) -> None:
    """Refuse a copy that writes where an original does: each would take the other's results for its own.

    One whose original is gone was moved, and goes on.

    Args:
        store: The store.
        name: Its name, which its originals have as well.
        origins: Where it has been before.
        output: The folder that it is to write to, if there is one.
    """
    for origin in sorted(origins) if output is not None else ():
        if one_folder(store.root, origin):
            continue
        try:
            original = unseal(Store(origin).read(DESCRIPTION) or b"", "", documents.Claim)
        except (OSError, StateError, DefinitionError):
            continue
        if (original["name"], original["output"]) == (name, output):
            raise DefinitionError(
                f"The checkpoint at {store.root} is a copy of the one at {origin}, which is still there, and both "
                f"write to {output}: results would be lost or doubled. Write to another path, or remove the original."
            )


def one_folder(one: str, other: str) -> bool:
    """Tell whether two paths lead to one folder of this host, by a link or by a mount."""
    try:
        return one == other or os.path.samefile(one, other)
    except OSError:
        return False


def _compare(store: Store, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    what = "; ".join(differences(theirs, mine))
    if what:
        raise DefinitionError(
            f"The checkpoint at {store.root} belongs to another query: {what}. "
            f"Use the old query or {AFRESH}; nodes, strategy, order and trigger may change."
        )
