"""A lease keeps the log that a follower still needs, for seven days; then the follower's position is lost, by name."""

import io
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from support.followed import DAY, Follower, all_over, both_equal, forget, more, pair, write_aged
from support.pipeline import Pipeline
from support.scripted import ScriptedSource
from support.scripted_runs import Copy
from tailrace import sources
from tailrace.changelog.followers import (
    FollowerLease,
    followers_need,
    lease_path,
    leases,
    needed,
    remove_lease,
    write_lease,
)
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.paths import segment_path
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.trim import sweep
from tailrace.cli import main as cli
from tailrace.contract.resources import StorageSpec
from tailrace.contract.status import Status
from tailrace.driver.telling import display, metrics
from tailrace.driver.telling.followers import FollowerWatch
from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.sources.followed import stream
from tailrace.storage.store import Storage


def lease(name: str, record: int, seq: int, written_at: int = 0) -> FollowerLease:
    return FollowerLease(log_id=name, name=name, record=RecordNumber(record), seq=Seq(seq), written_at=written_at)


def test_the_slowest_lease_that_is_not_old_counts() -> None:
    found = [lease("old", 1, 1), lease("slow", 5, 50, 3 * DAY), lease("fast", 9, 90, 3 * DAY)]
    assert (followers_need(found, 7 * DAY + 1).record, followers_need(found, 7 * DAY + 1).seq) == (6, 51)
    assert (followers_need(found, 7 * DAY).record, followers_need(found, 7 * DAY).seq) == (2, 2)
    assert followers_need(found, 11 * DAY).seq is None


def test_a_lease_that_cannot_be_read_stops_retention_until_it_is_old(tmp_path: Path) -> None:
    storage, now = Storage.open(StorageSpec(location=tmp_path.as_uri())), int(time.time() * 1_000_000)
    write_lease(storage, lease("one", 5, 50))
    storage.put(lease_path("broken"), b"{")
    storage.put("followers/.unfinished", b"{")
    assert [found.name for found in leases(storage)] == ["one"]
    with pytest.raises(Retry, match=r"broken\.json is no lease that can be read"):
        needed(storage, now)
    write_aged(storage, lease("broken", 1, 1, now - 8 * DAY))
    times = (tmp_path / lease_path("broken")).stat()
    storage.put(lease_path("broken"), b"{")
    os.utime(tmp_path / lease_path("broken"), (times.st_atime, times.st_mtime))
    assert needed(storage, now).seq == 51


@pytest.mark.parametrize("clock", [-8 * DAY, 0, 400 * DAY])
def test_the_age_of_a_lease_is_by_the_clock_of_the_storage(tmp_path: Path, clock: int) -> None:
    storage, now = Storage.open(StorageSpec(location=tmp_path.as_uri())), int(time.time() * 1_000_000)
    write_lease(storage, lease("one", 5, 50, now + clock))
    assert needed(storage, now).seq == 51
    assert needed(storage, now + 8 * DAY).seq is None


def test_what_a_later_version_adds_to_a_lease_is_ignored(tmp_path: Path) -> None:
    storage = Storage.open(StorageSpec(location=tmp_path.as_uri()))
    text = json.loads(lease("one", 5, 50).model_dump_json()) | {"added": {"later": 1}}
    storage.put(lease_path("one"), json.dumps(text).encode())
    assert needed(storage, int(time.time() * 1_000_000)).seq == 51


def behind(owner: Copy, follower: Follower) -> None:
    """The follower stands still while its owner has gone on; both are stopped."""
    owner.start()
    follower.start()
    both_equal(owner, follower)
    follower.stop()
    for _ in range(4):
        more(owner.database)
        owner.level()
    owner.stop()


def test_a_follower_that_was_away_for_six_days_continues(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        behind(owner, follower)
        before = follower.rows(1)
        forget(owner, 6)
        owner.start()
        follower.start()
        both_equal(owner, follower)
        assert before != follower.rows(1)
        assert [s.plan.request for s in follower.state.snapshots.values()] == [None], "nothing was read again"


def test_the_sweep_leaves_what_a_follower_needs_of_tables_that_have_started_over(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        behind(owner, follower)
        owner.start()
        asked = owner.ask("main.orders", resync=True)
        owner.until(lambda state: (s := state.snapshots.get(asked)) is not None and s.ended is not None, work=True)
        more(owner.database)
        owner.level()
        owner.stop()
        storage, state = owner.storage, JournalReader.open(owner.storage).state
        first = needed(storage, 0).seq
        unneeded = segment_path(state.tables[1].schema, Seq(0), Seq((first or 0) - 1), "cd")
        storage.put(unneeded, b"rows")
        assert sweep(storage, state) == [unneeded]
        owner.start()
        follower.start()
        both_equal(owner, follower)
        follower.stop()
        remove_lease(storage, follower.lease.log_id)
        assert sweep(storage, owner.state) != []


def test_after_seven_days_its_position_is_lost_until_a_resync(tmp_path: Path) -> None:
    with pair(tmp_path) as (owner, follower):
        behind(owner, follower)
        forget(owner, 8)
        error = follower.refused(PositionLost, match="no longer has record")
        assert "resync --all" in error.fix
        all_over(follower, "again")
        owner.start()
        follower.start()
        both_equal(owner, follower)


def command(copy: Pipeline, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    manifest = copy.folder / "replicator.json"
    manifest.write_text(json.dumps(copy.document))
    code = cli.main([*words, "-f", str(manifest)])
    return code, capsys.readouterr().out


def test_doctor_and_status_name_a_follower_that_no_longer_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pair(tmp_path) as (owner, _):
        monkeypatch.setattr(sources, "open", lambda *_: ScriptedSource(owner.database))
        with owner.running():
            owner.level()
        now = int(time.time() * 1_000_000)
        day_ago = (now - DAY) / 1_000_000
        write_aged(owner.storage, lease("gone", 3, 30, now - 8 * DAY))
        write_aged(owner.storage, lease("there", 3, 30, now))
        write_aged(owner.storage, lease("still", 3, 30, now - DAY))
        owner.storage.put(lease_path("torn"), b"{")
        torn = f"the follower of the unreadable lease {owner.storage.uri(lease_path('torn'))}"
        _, text = command(owner, capsys, "doctor")
        assert "warn change log: gone follows this log" in text and "there follows" not in text
        since, until = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z" for at in (day_ago, day_ago + 604_800))
        kept = f"has not read it since {since}: what it needs is kept until {until}"
        assert f"warn change log: still follows this log, and {kept}" in text
        assert f"warn change log: {torn} has a place in this log that is not known" in text
        watch = FollowerWatch(lambda: now / 1_000_000)
        watch.look(owner.storage)
        found = {report.name: (report.held, report.silent, report.record) for report in watch.reports()}
        silent = {"gone": (False, False, 3), "still": (True, True, 3)}
        assert found == silent | {"there": (True, False, 3), torn: (True, False, None)}
        status = Status(name="shop", state="Running", started_at=0.0, updated_at=0.0, followers=watch.reports())
        printed = io.StringIO()
        Console(file=printed, width=1_000).print(display.render(status))
        printed_text = " ".join(printed.getvalue().split())
        assert "follower gone has not read the change log for seven days" in printed_text
        kept = f"has not read the change log since {since}, and what comes after record 3 is kept for it until {until}"
        assert f"follower still {kept}" in printed_text
        assert f" {torn} has a place in the change log that is not known" in printed_text
        assert f"follower {torn}" not in printed_text
        assert "so nothing is removed; if there is no such follower, delete that file" in printed_text
        assert "follower there " not in printed_text
        counted = metrics.render(status).decode()
        assert 'tailrace_followers{held="true"} 3.0' in counted and 'tailrace_followers{held="false"} 1.0' in counted


def test_doctor_tries_to_write_the_followers_place_and_asks_for_the_logs_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pair(tmp_path) as (owner, follower):
        source = ScriptedSource(owner.database)
        monkeypatch.setattr(sources, "open", lambda *_: source)
        with owner.running():
            owner.level()
        place = Path(owner.storage.access.prefix) / "followers"
        _, text = command(follower, capsys, "doctor")
        assert "fail follow" not in text and not place.exists(), "the probe leaves nothing"
        place.touch()  # where files are to be written
        _, text = command(follower, capsys, "doctor")
        assert f"fail follow: {place.as_uri()} cannot be written" in text and "keeps its place there" in text
        place.unlink()
        refused = SourceRefused("reader lacks REPLICATION CLIENT", "Run `GRANT`.")

        def log_end(_: object) -> int:
            raise refused

        monkeypatch.setattr(ScriptedSource, "log_end", log_end)
        _, text = command(follower, capsys, "doctor")
        assert "fail rights: reader lacks REPLICATION CLIENT\n     fix: Run `GRANT`." in text
        assert "shop's change log" in text, "the rest is told, too"


def test_doctor_says_what_is_followed_and_drop_takes_the_lease_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pair(tmp_path) as (owner, follower):
        monkeypatch.setattr(sources, "open", lambda *_: ScriptedSource(owner.database))
        owner.start()
        owner.level()
        assert "shop's change log" in command(follower, capsys, "doctor")[1]
        owner.database.names.append("later")
        follower.start()
        both_equal(owner, follower)
        follower.stop()
        assert "continues after record" in command(follower, capsys, "doctor")[1]
        monkeypatch.setattr(stream, "LEASE_SECONDS", 0.0)
        assert len(list(leases(owner.storage))) == 1
        code, text = command(follower, capsys, "drop", "--run-dir", str(tmp_path / "run"))
        assert code == 0 and "lease in the change log" in text and "dropped" in text, text
        assert list(leases(owner.storage)) == [] and len(owner.database.readers) == 1
