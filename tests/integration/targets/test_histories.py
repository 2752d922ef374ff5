"""Copies with a row for each change (`options[].history: Changes`), in every target, against the changes themselves."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from support.conforming import Subject
from support.histories import HistoryLog, HistoryTable, expected
from support.random_log import KeyOf, first_schema
from tailrace.changelog.history import stored
from tailrace.changelog.records.terms import RecordNumber
from tailrace.targets.api import ChunkLost

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

EACH = pytest.mark.parametrize(
    "subject", ["delta", "iceberg", "postgresql", "mysql", "bigquery", "snowflake"], indirect=True
)


def begun(subject: Subject, folder: Path, seed: int) -> tuple[HistoryLog, HistoryTable]:
    random, composite = Random(seed), bool(seed % 2)
    prefix = "Sys_" if composite else "_"
    schema = first_schema(composite).model_copy(update={"history": "Changes", "history_prefix": prefix})
    keys: list[KeyOf] = [("r" * (n % 3), n) if composite else (n,) for n in range(random.randint(3, 9))]
    table = HistoryTable(subject, stored(schema))
    return HistoryLog(random, folder, schema, keys, table), table


def equal(subject: Subject, log: HistoryLog) -> None:
    found, wanted = subject.rows(stored(log.table.schemas[0].table)), expected(log)
    columns = {column.name for column in stored(log.schema).columns}
    shown = [{name: value for name, value in row.items() if name in columns} for row in found]
    assert sorted(map(_text, shown)) == sorted(map(_text, wanted))


def _text(row: dict[str, object]) -> str:
    at = {name: value.astimezone(UTC) for name, value in row.items() if isinstance(value, datetime)}
    return repr(sorted((row | at).items()))


@EACH
def test_it_has_each_change_once_however_the_log_is_cut_into_batches(subject: Subject, tmp_path: Path) -> None:
    """Several changes of a key in one record, moves, TRUNCATEs, values that the log does not carry, late chunks, added
    and renamed columns; batches of one record or more, and drivers that begin anew."""
    log, table = begun(subject, tmp_path, seed=3)
    rnd, batches = Random(5), 0
    for turn in range(24):
        log.grow()
        if rnd.random() < 0.6:
            through = RecordNumber(rnd.randint(table.applied.applied_record, log.record))
            batches += table.bring(log, through) is not None
        if turn % 7 == 6:
            table.restart()
    table.bring(log, log.record)
    equal(subject, log)
    operations = {change.op for change, _ in log.history}
    assert operations == {"I", "U", "D", "M", "T"} and len(log.chunks) > 5 and batches > 5
    assert len(log.table.schemas) > 1


@EACH
def test_a_chunk_that_is_lost_stops_the_batch_before_anything_is_added(subject: Subject, tmp_path: Path) -> None:
    log, table = begun(subject, tmp_path, seed=4)
    log.grow_by_changes(3)
    table.bring(log, log.record)
    before = subject.rows(table.schema)
    while not any(chunk.path for chunk, _ in log.chunks):
        log.record = RecordNumber(log.record + 1)
        log._chunk()
    path = next(str(chunk.path) for chunk, _ in log.chunks if chunk.path)
    subject.lose(path)
    with pytest.raises(Exception) as failed:
        table.bring(log, log.record)
    assert isinstance(failed.value, ChunkLost) or isinstance(getattr(failed.value, "error", None), ChunkLost)
    table.restart()
    assert sorted(map(_text, subject.rows(table.schema))) == sorted(map(_text, before))
