"""A follower's copy equals the source, whatever happens meanwhile and wherever its capture dies; the source has one
reader.
"""

import shutil
import time
from pathlib import Path
from random import Random

import pytest

from support.followed import ALWAYS, OWNERS, Follower, all_over, both_equal, die, followed, life, more, pair
from support.killed import killed_at
from support.scripted_database import Change
from support.scripted_runs import Copy
from support.versions import seeds
from support.waiting import until
from tailrace.capture.client import CaptureClient, CaptureGone
from tailrace.changelog import bundles
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.paths import SEGMENTS, record_path
from tailrace.changelog.records.notices import Notified
from tailrace.changelog.records.terms import RecordNumber
from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.selection import masking
from tailrace.sources.followed import stream, subscription
from tailrace.sources.followed.place import FollowedPlace


def test_two_targets_are_fed_by_one_reader_of_the_source(tmp_path: Path) -> None:
    for seed in seeds(1):
        print(f"seed {seed}")
        (tmp_path / str(seed)).mkdir()
        random = Random(seed)
        with pair(tmp_path / str(seed), random) as (owner, follower):
            followed(owner, follower, random, turns=30)
        assert len(owner.database.readers) == 1


def test_tables_are_taken_up_when_everything_in_the_log_that_is_followed_is_visible(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        owner.start()
        owner.level()
        hidden = owner.database.commit(Change("I", 1, 7777, "hidden"), hidden=True)
        owner.until(lambda state: state.position >= hidden)
        follower.start()
        more(owner.database)
        owner.until(lambda state: state.position >= owner.database.end)
        time.sleep(2 * stream.LOOK_SECONDS)
        assert follower.state.tables == {}
        owner.database.hidden.clear()
        both_equal(owner, follower)


def test_a_follower_that_starts_before_its_owner_waits_for_the_log_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "WAIT_SECONDS", 0.01)
    with pair(tmp_path) as (owner, follower):
        said = f"the change log at {owner.storage.root}, which the Replicator that is followed has not begun"
        for ended in (True, False):
            follower.capture = follower.begin_capture()
            until(lambda: _waits_for(follower) == said, "the follower says what it waits for")
            assert not list(follower.storage.list("")), "nothing was made"
            if ended:
                follower.stop()
        with owner.running():
            owner.level()
            until(lambda: list(follower.storage.list("journal/")), "the follower begins")
            assert _waits_for(follower) is None
            follower.stop()
            with follower.running():
                both_equal(owner, follower)


def test_an_owner_that_records_nothing_while_its_source_moves_on_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SILENT_SECONDS", 0.0)
    with pair(tmp_path) as (owner, follower):
        with owner.running(), follower.running():
            both_equal(owner, follower)
            follower.until(lambda _: _waits_for(follower) is None)
        with follower.running():
            more(owner.database)
            said = f"shop, which has recorded nothing in the change log at {owner.storage.root} since 20"
            until(lambda: (_waits_for(follower) or "").startswith(said), "the owner is named")
            with owner.running():
                both_equal(owner, follower)
                until(lambda: _waits_for(follower) is None, "the owner is no longer named")


def _waits_for(follower: Follower) -> str | None:
    assert follower.capture is not None
    follower.capture.check()
    try:
        with CaptureClient(follower.capture.socket, 60) as client:
            return client.state().waiting_for
    except CaptureGone:
        return None


SEAMS = (
    ("follow.before-record", 1), ("follow.before-record", 5), ("capture.after-segments", 1),
    ("journal.before-create", 2), ("journal.after-create", 2), ("capture.before-ack", 1),
)  # fmt: skip


def test_a_follower_that_dies_anywhere_continues_where_its_own_log_ends(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        with owner.running():
            owner.level()
        for seam in ("capture.after-origin", "follow.before-join"):
            killed_at(seam, lambda: life(follower))
        with follower.running():
            follower.until(lambda state: bool(state.tables))
        for seam, visit in SEAMS:
            with owner.running():
                for _ in range(6):
                    more(owner.database, 2)
                    owner.level()
            killed_at(seam, lambda: life(follower), visit)
        owner.start()
        follower.start()
        both_equal(owner, follower)


def test_an_owner_that_dies_anywhere_while_it_is_followed_loses_nothing_for_either_copy(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        with owner.running(), follower.running():
            both_equal(owner, follower)
        for number, seam in enumerate(OWNERS):
            die(owner, follower, seam, ALWAYS[number % len(ALWAYS)])
        with owner.running(), follower.running():
            both_equal(owner, follower)
            assert len(follower.state.snapshots) == 1, "nothing was read again"
        assert not owner.storage.exists(record_path(RecordNumber(1))), "the owner has forgotten what it could"


def test_the_lease_says_what_the_follower_has_made_durable_and_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LEASE_SECONDS", 0.0)
    with pair(tmp_path) as (owner, follower):
        owner.start()
        follower.start()
        both_equal(owner, follower)
        follower.until(lambda _: follower.lease.seq == owner.state.last_seq)
        assert follower.lease.name == "follower"
        assert f'"record":{follower.lease.record}' in (follower.state.source_state or "")


def test_records_that_bring_nothing_are_passed_for_good_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "UNRECORDED", 2)
    with pair(tmp_path) as (owner, follower):
        owner.start()
        follower.start()
        both_equal(owner, follower)
        for _ in range(3):
            owner.driver.client.append([Notified(record=owner.state.number)])
        newest = owner.state.number
        follower.until(lambda state: FollowedPlace.of(state.source_state).record >= newest - 1)


def test_a_table_that_the_follower_no_longer_selects_ends_and_comes_back_as_it_is_then(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        owner.database.names.append("items")
        owner.start()
        follower.start()
        both_equal(owner, follower)
        follower.stop()
        follower.document["spec"]["tables"] = {"include": ["main.orders"]}
        follower.start()
        owner.database.commit(Change("I", 2, 1, "unseen"))
        owner.level()
        follower.until(lambda state: state.tables[2].removed, work=True)
        follower.stop()
        follower.document["spec"]["tables"] = {"include": ["main.*"]}
        follower.start()
        follower.until(lambda state: not state.tables[2].removed, work=True)
        both_equal(owner, follower)


def test_a_resync_of_the_follower_reads_its_copy_again_and_leaves_the_owner_alone(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        owner.start()
        follower.start()
        both_equal(owner, follower)
        before = owner.state.number
        asked = follower.ask("main.orders", resync=True)
        follower.until(lambda state: (s := state.snapshots.get(asked)) is not None and s.ended is not None, work=True)
        assert follower.state.tables[1].resync == asked
        assert not any(s.plan.resync for s in owner.state.snapshots.values()) and owner.state.number >= before
        more(owner.database)
        both_equal(owner, follower)


def test_a_hash_is_not_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking._process, "key", b"k" * 32)
    key = tmp_path / "key"
    key.write_text("k" * 32)
    options = [{"match": "main.*", "mask": [{"column": "v", "method": "Hash"}]}]
    with pair(tmp_path) as (owner, follower):
        for one in (owner, follower):
            one.document["spec"] |= {"options": options, "maskKey": {"file": str(key)}}
        owner.start()
        follower.start()
        owner.level()
        follower.level()
        owner.database.commit(Change("I", 1, 9000, "abcdefgh"))
        owner.level()
        follower.level()
        assert follower.rows(1)[9000] not in ("abcdefgh", None) and follower.rows(1) == owner.rows(1)


def _fail_over(owner: Copy, server: str) -> None:
    owner.database.server, owner.database.continues = server, True


def test_a_follower_moves_to_another_server_behind_its_owner(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower), owner.running(), follower.running():
        both_equal(owner, follower)
        owner.stop()
        _fail_over(owner, "second")
        more(owner.database)
        owner.start()
        more(owner.database)
        owner.level()
        follower.broken(Retry, match="another server")
        follower.start()
        both_equal(owner, follower)
        assert len(follower.state.snapshots) == 1 and follower.state.origin is not None
        assert follower.state.origin.identity["server"] == "second"
        follower.ask("main.orders", resync=True)
        both_equal(owner, follower)


@pytest.mark.parametrize("changed", [False, True])
def test_a_follower_that_was_away_while_its_owner_moved_twice_continues(tmp_path: Path, changed: bool) -> None:
    """`changed`: there are rows between the moves."""
    with pair(tmp_path) as (owner, follower):
        with owner.running(), follower.running():
            both_equal(owner, follower)
        for server in ("second", "memory"):
            _fail_over(owner, server)
            with owner.running():
                if changed:
                    more(owner.database)
                owner.level()
        with owner.running():
            more(owner.database)
            for _ in range(2):
                follower.refused(Retry, match="another server")
            with follower.running():
                both_equal(owner, follower)
                assert len(follower.state.snapshots) == 1


# ---- refusals ----


def test_rows_that_the_owner_masks_come_masked_once_and_other_masks_are_refused_by_name(tmp_path: Path) -> None:
    masks = [{"match": "main.*", "mask": [{"column": "v", "method": "Truncate", "length": 3}]}]
    with pair(tmp_path) as (owner, follower):
        owner.document["spec"]["options"] = masks
        with owner.running():
            owner.level()
            refused = follower.refused(SourceRefused, match=r"main\.orders is not read as .*'v' has no mask here")
            assert "options" in refused.fix
            assert not list(follower.storage.list("journal/"))  # nothing was made
            follower.document["spec"]["options"] = masks
            follower.start()
            owner.database.commit(Change("I", 1, 9000, "abcdefgh"))
            owner.level()
            follower.level()
            assert follower.rows(1)[9000] == "abc" and follower.rows(1) == owner.rows(1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": "id > 3"}, 'where is "id" > 3 here, not set there'),
        ({"history": "SoftDelete"}, "history is SoftDelete here, not set there"),
    ],
)
def test_other_options_are_refused_by_name(tmp_path: Path, options: dict[str, object], said: str) -> None:
    with pair(tmp_path) as (owner, follower), owner.running():
        owner.level()
        follower.document["spec"]["options"] = [{"match": "main.*", **options}]
        follower.refused(SourceRefused, match=said)


FORMS = [
    ({"historyPrefix": "x_"}, {}, "historyPrefix is x_ here, _ there"),
    ({}, {"historyPrefix": "x_"}, "historyPrefix is _ here, x_ there"),
    ({"partitionBy": "day"}, {}, "partitionBy is day here, not set there"),
    ({}, {"partitionBy": "day"}, "partitionBy is not set here, day there"),
]


@pytest.mark.parametrize(("mine", "others", "said"), FORMS)
def test_the_same_history_in_another_form_is_refused_by_name(
    tmp_path: Path, mine: dict[str, str], others: dict[str, str], said: str
) -> None:
    """Else the copy would silently have the form that the other manifest asks for."""
    changes = {"match": "main.*", "history": "Changes"}
    with pair(tmp_path) as (owner, follower):
        owner.document["spec"]["options"] = [{**changes, **others}]
        follower.document["spec"]["options"] = [{**changes, **mine}]
        with owner.running():
            owner.level()
            refused = follower.refused(SourceRefused, match=said)
            assert "historyPrefix, partitionBy" in refused.fix
            assert not list(follower.storage.list("journal/"))  # nothing was made


def test_the_log_of_a_follower_is_refused(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower), owner.running():
        owner.level()
        follower.start()
        follower.level()
        second = Follower(owner, tmp_path / "second", follows=follower)
        second.refused(SourceRefused, match="follows another one")


def test_a_log_is_followed_for_good_or_never(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower), owner.running():
        owner.level()
        follower.start()
        follower.level()
        follower.stop()
        del follower.document["spec"]["follow"]
        follower.refused(SourceRefused, match="follows another one, the manifest says otherwise")


def test_another_source_than_the_owners_is_refused(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        with owner.running():
            owner.level()
        owner.database.server = "another"
        follower.refused(SourceRefused, match="server another")


def test_a_stream_that_starts_over_there_is_a_lost_position_here_until_a_resync(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        owner.start()
        follower.start()
        both_equal(owner, follower)
        owner.stop()
        all_over(owner, "all-again")
        owner.start()
        follower.broken(PositionLost, match="has started over")
        follower.refused(PositionLost, match="has started over")
        all_over(follower, "again-here")
        follower.start()
        more(owner.database)
        both_equal(owner, follower)


def test_a_log_that_was_restored_and_has_caught_up_is_not_the_one_that_was_followed(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        with owner.running():
            owner.level()
        shutil.copytree(tmp_path / "owner", tmp_path / "backup")
        readers = dict(owner.database.readers)
        owner.start()
        follower.start()
        more(owner.database)
        both_equal(owner, follower)
        follower.stop()
        owner.stop()
        place = FollowedPlace.of(JournalReader.open(follower.storage).state.source_state)
        shutil.rmtree(tmp_path / "owner")
        shutil.move(tmp_path / "backup", tmp_path / "owner")
        owner.database.readers.update(readers)
        owner.start()
        while owner.state.number <= place.record + 1:
            more(owner.database, 1)
            owner.level()
        follower.refused(PositionLost, match="restored to an older state, and written on")


def test_rows_that_are_missing_are_a_position_that_is_lost(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        owner.start()
        follower.start()
        both_equal(owner, follower)
        follower.stop()
        more(owner.database)
        owner.level()
        owner.stop()
        owner.storage.delete_many([path for path, _ in owner.storage.list(SEGMENTS)])
        bundles.BUNDLES_READ._found.clear()
        with pytest.raises(PositionLost, match="no longer has record"):
            life(follower)
