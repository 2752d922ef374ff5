"""After a lost position the request that the operator hands over starts everything over, once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scripted_database import Change
from support.scripted_runs import Copy, filled
from tailrace.contract.driver import SnapshotBody
from tailrace.contract.manifest import load
from tailrace.errors import PositionLost

REQUEST = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "SnapshotRequest"}


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Copy]:
    """Everything was copied, then the source forgot its log."""
    copy = Copy(filled("one", "two"), tmp_path)
    copy.resync = tmp_path / "resync.json"
    with copy.running():
        copy.level()
    lose(copy)
    yield copy
    copy.stop()


def lose(copy: Copy) -> None:
    copy.stop()
    copy.database.commit(Change("U", 1, 3, "!"), Change("D", 2, 3))
    copy.database.commit(Change("I", 2, 3, "again"))
    copy.database.readers.clear()


def hand_over(copy: Copy, uid: str) -> None:
    """As the operator puts it into the driver's ConfigMap."""
    spec = {"replicator": "shop", "tables": ["*.*"], "resync": True, "chunkRows": 5}
    document = {**REQUEST, "metadata": {"name": "again", "namespace": "team", "uid": uid}, "spec": spec}
    assert copy.resync is not None
    copy.resync.write_text(json.dumps(document))


def ask_again(copy: Copy, uid: str) -> tuple[str, ...]:
    """The operator tells the running driver of the request, as of any other."""
    assert copy.resync is not None
    request = load(copy.resync).requests[0]
    answer = copy.driver.control.request(uid, SnapshotBody(name=request.metadata.name, spec=request.spec))
    return answer.tables


def snapshots(copy: Copy) -> dict[str, int]:
    """Number of tables by id, of those that read whole tables; `initial` ones count by their kind."""
    found: dict[str, int] = {}
    for key, snapshot in copy.state.snapshots.items():
        name = "initial" if key.startswith("initial-") else key
        found[name] = found.get(name, 0) + len(snapshot.tables)
    return found


def test_a_handed_over_request_starts_all_over_once(lost: Copy) -> None:
    lost.refused(PositionLost)
    hand_over(lost, "first")
    lost.start()
    lost.equal()
    assert ask_again(lost, "first") == ("main.one", "main.two")
    assert snapshots(lost) == {"initial": 2, "first": 2}, "it was done by the start, and nothing is read twice"
    lost.stop()
    lost.start()
    lost.equal()
    lose(lost)
    lost.refused(PositionLost)  # the request is still there, and has acted
    hand_over(lost, "second")
    lost.start()
    lost.equal()
    assert snapshots(lost) == {"initial": 2, "first": 2, "second": 2}


def test_a_request_that_a_running_driver_had_or_that_has_acted_starts_nothing_over(lost: Copy) -> None:
    for uid in ("first", "second"):
        hand_over(lost, uid)
        lost.start()
        lost.equal()
        asked = lost.ask("*.*", resync=True)
        lost.equal()
        lose(lost)
        for known in ("first", uid, asked):
            hand_over(lost, known)
            lost.refused(PositionLost)


def test_a_driver_that_was_up_before_capture_began_on_another_server_reads_from_that_one(tmp_path: Path) -> None:
    """The source was restored elsewhere while capture was away, and the stream starts over under a running driver."""
    copy = Copy(filled("one", "two"), tmp_path)
    copy.resync = tmp_path / "resync.json"
    with copy.running():
        copy.level()
        assert copy.capture is not None
        copy.capture.stop()
        copy.database.server = "restored"
        copy.database.readers.clear()
        hand_over(copy, "first")
        copy.capture = copy.begin_capture()
        copy.until(lambda state: state.renewed == "first")
        with copy.driver.tools.source.session() as session:
            assert session.log_end() == copy.database.end
    with copy.running():
        copy.equal()
