"""The ages of changes: from the journal's records to percentiles, over pauses and restarts."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from support.states import keyed, log_state, segment, table_log
from tailrace.apply import freshness
from tailrace.apply.freshness import STEP, WINDOW_STEP, Freshness
from tailrace.changelog.logged import LoggedSegment
from tailrace.changelog.packed import PackedRows
from tailrace.changelog.paths import FRESHNESS
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.segment_list import SegmentList
from tailrace.changelog.state import LogState, TableLog
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage

NOW = 1_790_000_000.0


def storage(folder: Path) -> Storage:
    return Storage.open(StorageLocation(location=f"file://{folder}/log"))


def history(*records: tuple[int, float, float, int]) -> tuple[LogState, TableLog]:
    """A log of one table: (record, oldest and newest commit time, rows)."""
    first, logged = 1, []
    for record, _, _, rows in records:
        logged.append(LoggedSegment(record=RecordNumber(record), segment=segment(7, first, first + rows - 1)))
        first += rows
    table = table_log(keyed(7), 0, segments=SegmentList.of(logged))
    times = [
        PackedRows.of(np.array([(record[0], int(record[at] * 1e6)) for record in records], np.int64)) for at in (1, 2)
    ]
    return log_state(table, commit_times=times[0], newest_commits=times[1]), table


def through(number: int, after: int = 0) -> tuple[RecordNumber, RecordNumber]:
    return RecordNumber(after), RecordNumber(number)


def test_percentiles_are_those_of_the_changes_to_two_percent(tmp_path: Path) -> None:
    """Against every single commit time, as somebody who reads the target all the time would find them."""
    chance, measured = Random(3), Freshness(storage(tmp_path), NOW)
    records, ages, at = [], list[float](), NOW
    for number in range(1, 400):
        length, rows = chance.choice([0.0, 0.2, 1.0]), chance.randint(1, 60)
        commits = [at + length * (n + 0.5) / rows for n in range(rows)]
        records.append((number, min(commits), max(commits), rows))
        at += 1
        visible = at + chance.expovariate(0.5)
        ages += [visible - commit for commit in commits]
        state, table = history(*records[-1:])
        measured.applied(state, table, through(number, number - 1), visible)
    found = measured.ages(86_400, at)
    assert found.changes == len(ages)
    for percent in (50, 90, 95, 99, 99.9):
        exact = float(np.percentile(ages, percent))
        assert found.percentile(percent) == pytest.approx(exact, rel=0.05)
    for limit in (1.0, 2.5, 5.0):
        late = sum(age > limit for age in ages)
        assert found.changes - found.within(limit) >= late, "never better than it was"
        assert found.changes - found.within(limit) <= sum(age > limit / STEP for age in ages) + 0.02 * len(ages)


def test_only_the_records_that_a_batch_brought_count_and_one_commit_is_exact(tmp_path: Path) -> None:
    measured = Freshness(storage(tmp_path), NOW)
    state, table = history((1, NOW, NOW, 5), (2, NOW + 1, NOW + 1, 7), (4, NOW + 2, NOW + 2, 11))
    measured.applied(state, table, through(2, 1), NOW + 4)
    found = measured.ages(3600, NOW + 4)
    assert (found.changes, found.within(3.0 * STEP), found.within(2.9)) == (7, 7, 0)
    measured.applied(state, table, through(4, 2), NOW + 4)
    assert measured.ages(3600, NOW + 4).changes == 18 == measured.since_start().changes


def test_a_shutdown_and_a_suspension_are_told_apart_and_a_crash_is_not(tmp_path: Path) -> None:
    state, table = history((1, NOW + 50, NOW + 50, 10))
    crashed = Freshness(storage(tmp_path), NOW + 100)
    crashed.applied(state, table, through(1), NOW + 101)
    assert (crashed.ages(3600, NOW + 101).changes, crashed.ages(3600, NOW + 101).paused) == (10, 0)
    crashed.store(NOW + 110, stopped=True)
    again = Freshness(storage(tmp_path), NOW + 200)
    later = [(1, NOW + 60), (2, NOW + 150), (3, NOW + 199), (4, NOW + 201)]
    state, table = history(*((number, at, at, 10) for number, at in later))
    again.applied(state, table, through(4), NOW + 205)
    found = again.ages(3600, NOW + 205)
    assert (found.changes, found.paused) == (30, 20), "what was measured before is still there"
    oldest = 205 - 60 - 90
    assert found.percentile(100) == pytest.approx(oldest, rel=0.03), "it waited for the shutdown, too: that is no age"
    again.pause(True, NOW + 300)
    again.store(NOW + 300)
    state, table = history((5, NOW + 310, NOW + 310, 10), (6, NOW + 410, NOW + 410, 10))
    again.pause(False, NOW + 400)
    again.applied(state, table, through(6), NOW + 411)
    assert (again.ages(3600, NOW + 411).changes, again.ages(3600, NOW + 411).paused) == (40, 30)


def test_a_record_of_an_outage_has_the_ages_of_all_of_it(tmp_path: Path) -> None:
    """Capture was away for minutes: one record has what was written meanwhile."""
    measured, seconds, rows = Freshness(storage(tmp_path), NOW), 300.0, 5_000
    state, table = history((1, NOW, NOW + seconds, rows))
    measured.applied(state, table, through(1), NOW + seconds + 1)
    ages = [seconds + 1 - seconds * (n + 0.5) / rows for n in range(rows)]
    for percent in (50, 95, 99):
        exact = float(np.percentile(ages, percent))
        assert measured.ages(3600, NOW).percentile(percent) == pytest.approx(exact, rel=0.03)


def test_the_window_moves_and_what_is_older_than_all_windows_is_not_kept(tmp_path: Path) -> None:
    measured = Freshness(storage(tmp_path), NOW)
    for hour in range(400):
        at = NOW + hour * WINDOW_STEP
        state, table = history((hour + 1, at - 2, at - 2, 10))
        measured.applied(state, table, through(hour + 1, hour), at)
    end = NOW + 399 * WINDOW_STEP
    assert measured.ages(86_400, end).changes == 250
    measured.store(end, stopped=True)
    kept = storage(tmp_path).get(FRESHNESS)
    assert len(kept) < 20_000
    slots = freshness.LONGEST_WINDOW // WINDOW_STEP + 1
    assert Freshness(storage(tmp_path), end).ages(10 * 86_400, end).changes == 10 * slots


def test_a_file_that_is_not_readable_costs_what_was_measured_and_nothing_else(tmp_path: Path) -> None:
    place = storage(tmp_path)
    place.put(FRESHNESS, b'{"hours": 3')
    measured = Freshness(place, NOW)
    assert measured.ages(3600, NOW).percentile(95) is None
    measured.store(NOW, stopped=True)
    assert Freshness(place, NOW).ages(3600, NOW).changes == 0


def test_a_log_of_an_older_version_counts_each_record_as_old_as_its_oldest_commit(tmp_path: Path) -> None:
    measured = Freshness(storage(tmp_path), NOW)
    state, table = history((1, NOW, NOW + 1, 5))
    measured.applied(state.model_copy(update={"newest_commits": PackedRows(2)}), table, through(1), NOW + 2)
    assert measured.ages(3600, NOW + 2).within(1.9) == 0


def test_nothing_is_stored_while_nothing_is_new(tmp_path: Path) -> None:
    place = storage(tmp_path)
    measured = Freshness(place, NOW)
    measured.store(NOW)
    assert [path for path, _ in place.list("")] == []
    state, table = history((1, NOW, NOW, 5))
    measured.applied(state, table, through(1), NOW + 1)
    measured.store(NOW + 1)
    kept = place.get(FRESHNESS)
    place.delete(FRESHNESS)
    measured.store(NOW + 10_000)
    assert [path for path, _ in place.list("")] == []
    measured.store(NOW + 10_000, stopped=True)
    assert place.get(FRESHNESS) != kept
    Freshness(place, NOW + 10_001).store(NOW + 10_001)
    assert b"stopped_at" not in place.get(FRESHNESS), "or a crash would count as a pause"
