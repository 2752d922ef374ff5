"""Copies with all versions of their rows (`options[].history: Versions`), in every target, against the plain rule."""

from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from support.conforming import Subject
from support.kept_versions import VersionLog, Versions, VersionTable
from support.lake import EAGER
from support.random_log import KeyOf, first_schema
from support.soft_deletes import texts
from tailrace.apply.lost import needed_chunks
from tailrace.changelog.history import stored
from tailrace.changelog.records.terms import RecordNumber
from tailrace.targets.api import NeededChunks
from tailrace.targets.lake import table as lake_table
from tailrace.targets.sql import unit as sql_unit

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

EACH = pytest.mark.parametrize("subject", ["delta", "iceberg", "postgresql", "mysql"], indirect=True)


@EACH
def test_it_has_all_versions_however_the_log_is_cut_into_batches(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several changes of a key in one record and in one commit, moves, TRUNCATEs, values that the log does not carry,
    late chunks, lists of keys, ends of snapshots, added and renamed columns; batches of one record or more, drivers
    that begin anew, compactions that put open and ended rows into one file."""
    log, ended, batches = check(subject, tmp_path, monkeypatch, seed=4)
    assert {change.op for change, _ in log.history} == {"I", "U", "D", "M", "T"} and ended > 20
    assert len(log.chunks) > 5 and len(log.finishes) > 0 and batches > 5 and len(log.table.schemas) > 1


def check(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> tuple[VersionLog, int, int]:
    """Returns the log, and how many rows have ended, in how many batches."""
    rnd, now = Random(seed), 5000
    for module in (lake_table, sql_unit):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: now / 1_000_000))
    monkeypatch.setattr(lake_table, "CompactionLimits", lambda: EAGER)
    schema = first_schema(composite=True).model_copy(update={"history": "Versions", "history_prefix": "sys_"})
    keys: list[KeyOf] = [("r" * (n % 3), n) for n in range(9)]
    table = VersionTable(subject, stored(schema))
    log, times = VersionLog(Random(seed + 1), tmp_path, schema, keys, table), dict[int, int]()
    wanted = Versions(log)

    def bring(through: RecordNumber) -> None:
        for part in table.bring(log, through):
            wanted.follow(part, times, now)

    for turn in range(22):
        log.grow()
        times |= {chunk.chunk: log.moment(log.seq) for chunk, _ in log.chunks if chunk.chunk not in times}
        if rnd.random() < 0.6:
            bring(RecordNumber(rnd.randint(table.covered, log.record)))
        if turn % 5 == 4:
            current = next(s.table for s in log.table.schemas if s.table.version == table.applied.schema_version)
            needed = NeededChunks(needed_chunks(log.table, log.state, table.applied).paths)
            table.unit.tidy(stored(current), table.applied, needed, 0.0)
        if turn % 7 == 6:
            table.restart()
    bring(log.record)
    names = [column.name for column in stored(log.schema).columns]
    found = [{name: row[name] for name in names} for row in subject.rows(stored(log.table.schemas[0].table))]
    assert texts(found) == texts(wanted.shown(names))
    assert table.applied.holes == {tuple(map(str, key)) for key in wanted.target.holes}
    return log, len(wanted.ended), table.batches
