"""What a verification finds, on every target: each row that is not the source's, and no other, while both change.

Differences are planted in the change log, before the chunks are read: changes that the source never made.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from support.conforming import Database, InMemory, Lake, LogOf, MysqlDatabase, Subject, Table
from support.mysql import TARGETS, MysqlServer
from support.random_log import TABLE, KeyOf, first_schema
from support.states import chunk as made_chunk
from support.versions import one_of
from tailrace.batch.applied import AppliedState
from tailrace.batch.rule import UNCHANGED
from tailrace.batch.slice import FinishedSnapshot, Held, TableSlice, since_chunk, since_chunks
from tailrace.changelog.records.snapshots import ChunkRegistered, ComparisonResult, RowDifference
from tailrace.changelog.records.terms import Key, RecordNumber, Seq
from tailrace.changelog.state import LoggedSegment
from tailrace.targets.postgresql import session as pg_session

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def mysql_of_module() -> Iterator[MysqlServer]:
    with MysqlServer(one_of(TARGETS, __name__)) as server:
        yield server


@pytest.fixture(params=["delta", "iceberg", "memory", "postgresql", "mysql"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    (tmp_path / "log").mkdir()
    if request.param == "memory":
        return InMemory(tmp_path)
    if request.param == "postgresql":
        return Database(tmp_path, request.getfixturevalue("postgres"))
    if request.param == "mysql":
        server = request.getfixturevalue("mysql_of_module")
        for (name,) in server.execute("SELECT schema_name FROM information_schema.schemata"):
            if name in ("public", "_tailrace"):
                server.execute(f"DROP DATABASE {name}")
        return MysqlDatabase(tmp_path, server)
    return Lake(request.param, tmp_path, request.getfixturevalue("spark"))


class TrueLog(LogOf):
    """A log that a database could have written, beside what that database holds; and changes that it never made."""

    source: dict[KeyOf, Row]

    def write(self, count: int, true: bool = True) -> None:
        """One more record. `true` False: the source does not have these changes."""
        self.record = RecordNumber(self.record + 1)
        made = [self._true() if true else self._false() for _ in range(count)]
        segment = LoggedSegment(record=self.record, segment=self._write(made, bundled=self.rnd.random() < 0.5))
        self._update(segments=self.table.segments.append(segment))

    def empty(self) -> None:
        self.record = RecordNumber(self.record + 1)
        self._truncate()
        self.source.clear()

    def _true(self) -> Any:
        key = self.rnd.choice(self.keys)
        if key not in self.source:
            self.source[key] = self._row(key)
            return self._add("I", key, self.source[key])
        if self.rnd.random() < 0.3:
            del self.source[key]
            return self._add("D", key)
        before, after = self.source[key], self._row(key)
        keep = [self.rnd.random() < 0.3 and c.key is None for c in self.schema.columns]
        self.source[key] = tuple(b if k else a for b, a, k in zip(before, after, keep, strict=True))
        return self._add("U", key, tuple(UNCHANGED if k else a for a, k in zip(after, keep, strict=True)))

    def _false(self) -> Any:
        key = self.rnd.choice(self.keys)
        return self._add("D", key) if self.rnd.random() < 0.4 else self._add("I", key, self._row(key))

    def read(self, number: int, keys: list[KeyOf]) -> tuple[ChunkRegistered, RecordNumber]:
        """A chunk of these keys that is not applied."""
        rows = [self.source[key] for key in keys if key in self.source]
        names = [column.name for column in self.schema.columns]
        written = self.put(number, pa.table(self._columns(rows), names=names)) if rows else None
        self.record = RecordNumber(self.record + 1)
        read = made_chunk(
            TABLE, number, path=written and written.path, rows=len(rows), size=written.size if written else 0,
            schema_version=self.schema.version, layout=self.form, snapshot_id="v",
            replay_point=Seq(self.rnd.randint(max(self.since, self.seq - 4), self.seq + 1)),
        )  # fmt: skip
        return read, self.record

    since: Seq = Seq(1)
    """No chunk is replayed from before."""


def wrong(log: TrueLog, rows: list[dict[str, Any]]) -> list[RowDifference]:
    """What a reader would find."""
    names = [column.name for column in log.schema.columns]
    key_names = [column.name for column in log.schema.key_columns]
    there = {tuple(row[name] for name in key_names): tuple(row[name] for name in names) for row in rows}
    found = []
    for key in there.keys() | log.source.keys():
        text = tuple(map(str, key))
        if key not in there:
            found.append(RowDifference(kind="missing", key=text))
        elif key not in log.source:
            found.append(RowDifference(kind="extra", key=text))
        elif there[key] != log.source[key]:
            pairs = zip(names, there[key], log.source[key], strict=True)
            found.append(RowDifference(kind="different", key=text, columns=tuple(n for n, a, b in pairs if a != b)))
    return found


@pytest.mark.parametrize(("seed", "composite"), [(1, False), (2, True), (3, False), (4, True)])
def test_a_verification_finds_what_was_planted_and_nothing_else(
    subject: Subject, tmp_path: Path, seed: int, composite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pg_session, "FEW", seed % 2 and pg_session.FEW)  # keys are listed, or loaded
    schema, rnd = first_schema(composite), Random(seed)
    keys: list[KeyOf] = [("r" * (n % 3), n) if composite else (n,) for n in range(40)]
    table = Table(subject, schema)
    log = TrueLog(rnd, tmp_path, schema, keys, table)
    log.source = {}
    log.write(80)
    table.follow(log)
    log.write(rnd.randrange(1, 8), true=False)
    table.follow(log)
    log.since = Seq(log.seq + 1)
    chunks = []
    for number in range(4):
        log.write(rnd.randrange(1, 5))
        if seed == 4 and number == 2:
            log.empty()
        chunks.append(log.read(number, keys[number * 10 : number * 10 + 10]))
        log.write(rnd.randrange(1, 5))
        if rnd.random() < 0.5:
            table.follow(log)
    table.follow(log)
    held = Held(table.applied, log.record)

    def look(expected: TableSlice) -> tuple[ComparisonResult, tuple[Key, ...]]:
        def expect(applied: AppliedState) -> TableSlice:
            assert applied.applied_seq == table.applied.applied_seq
            return expected

        found = table.unit.look(log.schema, table.applied).compare(expect)
        assert {each.key for each in found.found.examples} == set(found.keys)
        return found.found, found.keys

    total, named = ComparisonResult(), set[Key]()
    for read, _ in chunks:
        part, some = look(since_chunk(log.state, TABLE, held, read))
        total, named = total + part, named | set(some)
    ended = FinishedSnapshot("v", min(c.replay_point for c, _ in chunks), RecordNumber(0), tuple(c for c, _ in chunks))
    rest, some = look(since_chunks(log.state, TABLE, held, ended))
    real = [d for d in wrong(log, subject.rows(schema)) if d.key not in table.applied.holes]
    found = {each.key: each for each in (*total.examples, *rest.examples)}
    assert all(each in real for each in found.values())
    assert len(real) - len(found) <= total.undecided
    if total.undecided == 0:
        assert Counter(each.kind for each in real) == Counter(each.kind for each in found.values())
