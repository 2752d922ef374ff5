"""A request names keys as people write them; its plan, and everything after it, has them as the change log does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scripted_database import Change
from support.scripted_runs import Copy, filled
from tailrace.contract.driver import SnapshotBody
from tailrace.driver.asking.server import Conflict
from tailrace.errors import InvalidManifest


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Copy]:
    copy = Copy(filled("one"), tmp_path)
    with copy.running():
        copy.level()
        yield copy


def body(*keys: str) -> SnapshotBody:
    spec = {"replicator": "shop", "tables": ["main.one"], "keys": [[key] for key in keys]}
    return SnapshotBody.model_validate({"name": "again", "spec": spec})


def test_a_plan_has_the_keys_as_the_change_log_writes_them(one: Copy) -> None:
    hidden = one.database.commit(Change("U", 1, 3, "hidden"), hidden=True)  # the chunk waits for it
    control, asked = one.driver.control, body("007", " 8")
    first = control.request("id", asked)
    assert one.state.snapshots["id"].plan.keys == (("7",), ("8",))
    assert control.request("id", asked) == first, "the same request is known again by what was written"
    with pytest.raises(Conflict):
        control.request("id", body("7", "9"))
    one.database.hidden.discard(hidden)
    one.level()
    assert control.request("id", asked) == first and one.state.snapshots["id"].ended is not None


def test_what_is_no_key_is_refused_when_it_is_asked_for(one: Copy) -> None:
    with pytest.raises(InvalidManifest, match="no key of the table"):
        one.driver.control.request("id", body("7", "seven"))
    assert "id" not in one.state.snapshots
