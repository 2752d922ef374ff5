"""Copies whose deleted rows stay, marked (`options[].history: SoftDelete`), in every target, against the plain rule."""

from pathlib import Path
from random import Random

import pytest

from support.conforming import Subject
from support.killed import killed_at
from support.random_log import KeyOf, first_schema
from support.soft_deletes import EVERYTHING, SoftLog, SoftTable, following, marks_of, shown, texts, told_of_lost
from tailrace.batch.limits import batch_end
from tailrace.batch.slice import cut
from tailrace.batch.soft_delete import ends_before
from tailrace.changelog.history import stored
from tailrace.changelog.records.terms import RecordNumber

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

EACH = pytest.mark.parametrize("subject", ["delta", "iceberg", "postgresql", "mysql"], indirect=True)


@EACH
def test_deleted_rows_stay_with_their_last_values_and_the_time(
    subject: Subject, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Several changes of a key in one record, moves, TRUNCATEs, values that the log does not carry, late chunks, lists
    of keys, ends of snapshots, added and renamed columns; batches of one record or more, drivers that begin anew."""
    rnd = Random(2)
    schema = first_schema(composite=True).model_copy(update={"history": "SoftDelete", "history_prefix": "sys_"})
    keys: list[KeyOf] = [("r" * (n % 3), n) for n in range(9)]
    table = SoftTable(subject, stored(schema))
    log = SoftLog(Random(3), tmp_path, schema, keys, table)
    for turn in range(24):
        log.grow()
        if rnd.random() < 0.6:
            table.bring(log, RecordNumber(rnd.randint(table.covered, log.record)))
        if turn % 7 == 6:
            table.restart()
    table.bring(log, log.record)
    equal(subject, log, table)
    assert told_of_lost(caplog) == len(table.lost) > 0
    assert {change.op for change, _ in log.history} == {"I", "U", "D", "M", "T"}
    assert len(log.chunks) > 5 and len(log.finishes) > 0 and table.batches > 5 and len(log.table.schemas) > 1


@pytest.mark.parametrize("subject", ["delta"], indirect=True)
def test_drivers_that_are_killed_around_their_commits_lose_no_mark(subject: Subject, tmp_path: Path) -> None:
    """SIGKILL of a fork that applies a batch, right before or right after its commit; another driver follows."""
    rnd = Random(4)
    schema = first_schema(composite=True).model_copy(update={"history": "SoftDelete"})
    keys: list[KeyOf] = [("r" * (n % 3), n) for n in range(9)]
    table = SoftTable(subject, stored(schema))
    log = SoftLog(rnd, tmp_path, schema, keys, table)
    killed, marked = list[bool](), False
    for turn in range(6):
        for _ in range(2):
            log.grow()
        log.grow_by_changes(5)
        table.covered = max(table.covered, table.applied.applied_record)
        end, part = table.covered, None
        while part is None:
            end = batch_end([(log.table, end)], log.record, EVERYTHING, ends_before(log.table))
            part = cut(log.state, table.schema.table_id, table.applied, end)
        seam = ("apply.before-commit", "apply.after-commit")[turn % 2]
        killed_at(seam, lambda: table.bring(log, log.record))
        table.restart()
        killed.append(table.applied.applied_record == part.through_record)
        if killed[-1]:
            table.wanted = following(table.wanted, log, part)
        table.bring(log, log.record)
        equal(subject, log, table)
        marked |= any(row[-2] for row in table.wanted.rows.values())
    assert killed == [False, True] * 3
    assert marked


def equal(subject: Subject, log: SoftLog, table: SoftTable) -> None:
    names = [column.name for column in stored(log.schema).columns]
    found = [{name: row[name] for name in names} for row in subject.rows(stored(log.table.schemas[0].table))]
    wanted = shown(table.wanted, names)
    assert texts(found) == texts(wanted)
    assert table.applied.holes == {tuple(map(str, key)) for key in table.wanted.holes}
    assert all(at is None or deleted for deleted, at in marks_of(found, names))
