"""What a verification finds, on every target: each row that is not the source's, and no other, while both change.

Differences are planted in the change log, before the chunks are read: changes that the source never made.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from typing_extensions import override

from support.conforming import LogOf, Rows, Subject, Table
from support.lake import table_schema
from support.random_log import TABLE, KeyOf, RandomLog, first_schema
from support.soft_deletes import EVERYTHING
from support.states import chunk as made_chunk
from support.states import log_state, table_log
from support.versions import turns
from tailrace.apply.history_chunks import HistoryChunkWriter
from tailrace.batch.applied import AppliedState
from tailrace.batch.history import stored_slice
from tailrace.batch.limits import batch_end
from tailrace.batch.rule import UNCHANGED
from tailrace.batch.slice import FinishedSnapshot, Held, TableSlice, cut, since_chunk, since_chunks
from tailrace.batch.soft_delete import ends_before
from tailrace.batch.versions import version_ends
from tailrace.changelog import keys
from tailrace.changelog.history import DELETED, VALID_TO, stored
from tailrace.changelog.records.snapshots import ChunkRegistered, ComparisonResult, RowDifference
from tailrace.changelog.records.terms import Key, RecordNumber, Seq, TableSchema
from tailrace.changelog.state import LoggedChunk, LoggedSegment
from tailrace.changelog.types import arrow_type
from tailrace.fold.comparison import Compared
from tailrace.targets.api import ChunkWriter
from tailrace.targets.postgresql import session as pg_session

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
Row = tuple[Any, ...]
History = Literal["SoftDelete", "Versions"] | None
SEEDS = turns(1, 2, 3, 4)
"""Of a key of one column and of one of two, two of each."""


class TrueLog(LogOf):
    """A log that a database could have written, beside what that database holds; and changes that it never made."""

    source: dict[KeyOf, Row]

    @property
    @override
    def writer(self) -> ChunkWriter:
        made = self.target.unit.chunk_writer(stored(self.schema))
        return made if self.schema.history is None else HistoryChunkWriter(self.schema, made)

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


@dataclass
class FollowingTable(Table):
    """Moved as the worker of its unit moves it."""

    @override
    def follow(self, log: RandomLog) -> TableSlice | None:
        part, covered = None, self.applied.applied_record
        while covered < log.record:
            ends = (*ends_before(log.table), *version_ends(log.table))
            covered = batch_end([(log.table, covered)], log.record, EVERYTHING, ends)
            part = cut(log.state, self.schema.table_id, self.applied, covered)
            if part is not None:
                self.apply(stored_slice(part))
        return part


def present(rows: Rows) -> Rows:
    """The rows that the copy has as the source's of today."""
    return [row for row in rows if not row.get(DELETED) and row.get(VALID_TO) is None]


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


@pytest.mark.parametrize("seed", SEEDS)
def test_a_verification_finds_what_was_planted_and_nothing_else(
    subject: Subject, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pg_session, "FEW", seed % 2 and pg_session.FEW)  # keys are listed, or loaded
    found_and_nothing_else(subject, tmp_path, seed, None)


@pytest.mark.parametrize("seed", turns(4, 5))
@pytest.mark.parametrize("history", turns("SoftDelete", "Versions"))
@pytest.mark.parametrize("subject", ["delta", "iceberg", "postgresql", "mysql"], indirect=True)
def test_a_copy_with_a_history_is_compared_by_what_it_claims_of_the_present(
    subject: Subject, tmp_path: Path, seed: int, history: History
) -> None:
    found_and_nothing_else(subject, tmp_path, seed, history)


def found_and_nothing_else(subject: Subject, folder: Path, seed: int, history: History) -> None:
    composite = seed % 2 == 0
    schema, rnd = first_schema(composite).model_copy(update={"history": history}), Random(seed)
    keys: list[KeyOf] = [("r" * (n % 3), n) if composite else (n,) for n in range(40)]
    table = FollowingTable(subject, stored(schema))
    log = TrueLog(rnd, folder, schema, keys, table)
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

        found = table.unit.look(stored(log.schema), table.applied).compare(expect)
        assert {each.key for each in found.found.examples} == set(found.keys)
        return found.found, found.keys

    total, named = ComparisonResult(), set[Key]()
    for read, _ in chunks:
        part, some = look(since_chunk(log.state, TABLE, held, read))
        total, named = total + part, named | set(some)
    ended = FinishedSnapshot("v", min(c.replay_point for c, _ in chunks), RecordNumber(0), tuple(c for c, _ in chunks))
    rest, some = look(since_chunks(log.state, TABLE, held, ended))
    sought = {n for n in range(50) if n % 3 == 0}
    looked = table.unit.look(stored(log.schema), table.applied)
    copy = looked.find(["id"], [(str(n),) for n in sought], ["t", "id"], 1000)
    shown = [(row["t"], row["id"]) for row in subject.rows(stored(schema)) if row["id"] in sought]
    assert sorted(map(repr, shown)) == sorted(repr((row["t"], row["id"])) for row in copy.rows.to_pylist())
    assert copy.applied.applied_seq == table.applied.applied_seq
    there = subject.rows(stored(schema))
    real = [d for d in wrong(log, present(there)) if d.key not in table.applied.holes]
    assert history is None or len(present(there)) < len(there)
    found = {each.key: each for each in (*total.examples, *rest.examples)}
    assert all(each in real for each in found.values())
    assert len(real) - len(found) <= total.undecided
    if total.undecided == 0:
        assert Counter(each.kind for each in real) == Counter(each.kind for each in found.values())


def found_in(
    subject: Subject, schema: TableSchema, there: pa.Table, source: pa.Table
) -> tuple[Compared, Compared, Table]:
    """The results for a chunk (or all rows, where there is no key) and for what no chunk has."""
    table = Table(subject, schema)
    writer, read = table.unit.chunk_writer(schema), []
    for snapshot_id, rows in (("s", there), ("v", source)):
        chunk = writer.write(snapshot_id, 0, [rows])
        assert chunk is not None
        place = {"path": chunk.path, "rows": chunk.rows, "size": chunk.size, "layout": writer.form}
        read.append(made_chunk(schema.table_id, snapshot_id=snapshot_id, replay_point=1, **place))
    applied, verified = read
    state = log_state(table_log(schema, chunks=(LoggedChunk(record=RecordNumber(2), chunk=applied),)), number=2)
    part = cut(state, schema.table_id, table.applied, RecordNumber(2))
    assert part is not None
    table.apply(part)
    held = Held(table.applied, RecordNumber(2))
    ended = FinishedSnapshot("v", Seq(1), RecordNumber(0), (verified,))

    def compared(expected: TableSlice) -> Compared:
        return table.unit.look(schema, table.applied).compare(lambda _: expected)

    chunk_alone = compared(since_chunk(state, schema.table_id, held, verified))
    rest = Compared(ComparisonResult()) if schema.keyless else since_chunks(state, schema.table_id, held, ended)
    return chunk_alone, rest if isinstance(rest, Compared) else compared(rest), table


def test_rows_are_found_by_values_of_columns_that_are_no_key(subject: Subject) -> None:
    schema = table_schema([("id", "int64"), ("a", "int32"), ("d", "decimal(12,3)"), ("day", "date")], ["id"])
    made = [
        (n, None if n % 5 == 0 else n % 7, None if n % 4 == 0 else Decimal(n % 3) / 4, date(2024, 1, 1 + n % 9))
        for n in range(100)
    ]
    types = [arrow_type(column.type) for column in schema.columns]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*made, strict=True), types, strict=True)]
    table = found_in(subject, schema, rows := pa.table(columns, names=[c.name for c in schema.columns]), rows)[2]
    look = table.unit.look(schema, table.applied)
    pairs = look.find(["a", "d"], [("3", "0.250"), ("4", "0.500"), ("9", "0.000")], ["id"], 50).rows
    expected = [n for n, a, d, _ in made if (a, d) in ((3, Decimal("0.25")), (4, Decimal("0.5")))]
    assert expected and sorted(pairs["id"].to_pylist()) == expected
    days = look.find(["day"], [("2024-01-05",)], ["day", "id"], 50).rows
    assert sorted(days["id"].to_pylist()) == [n for n, *_, day in made if day == date(2024, 1, 5)]
    assert look.find(["day"], [("2023-01-05",)], ["id"], 50).rows.num_rows == 0
    assert look.find(["a"], [(str(n),) for n in range(7)], ["id"], 5).rows.num_rows > 5


PLANTS, MISSING, EXTRA = 1000, 150, 150
"""Differences of one run, and how many of them are rows that the copy lacks, or has and should not."""
DAY = datetime(2024, 2, 29, 12)


def _float32(random: Random) -> float:
    return float(np.float32(random.uniform(-1e9, 1e9)))


def _text(random: Random) -> str:
    return random.choice(("", "a", "é", "  ")) + f"{random.getrandbits(40):x}"


VALUES: dict[str, tuple[Callable[[Random], Any], Callable[[Any], Any]]] = {
    "bool": (lambda r: r.random() < 0.5, lambda v: not v),
    "int32": (lambda r: r.randint(-(2**31), 2**31 - 2), lambda v: v + 1),
    "int64": (lambda r: r.randint(-(2**63), 2**63 - 2), lambda v: v + 1),
    "float32": (_float32, lambda v: float(np.nextafter(np.float32(v), np.float32(np.inf)))),
    "float64": (lambda r: r.uniform(-1e300, 1e300), lambda v: float(np.nextafter(v, np.inf))),
    "string": (_text, lambda v: v + " " if len(v) % 2 else v[:-1] + v[-1:].upper() + "\u0301"),
    "binary": (lambda r: r.randbytes(r.randint(1, 20)), lambda v: v + b"\0"),
    "date": (lambda r: DAY.date() + timedelta(days=r.randint(-90_000, 90_000)), lambda v: v + timedelta(days=1)),
    "time": (lambda r: time(r.randrange(24), r.randrange(60), 59, r.randrange(999_999)), lambda v: v.replace(
        microsecond=v.microsecond + 1)),
    "timestamp": (lambda r: DAY + timedelta(microseconds=r.getrandbits(50)), lambda v: v + timedelta(microseconds=1)),
    "timestamptz": (lambda r: DAY.replace(tzinfo=UTC) - timedelta(microseconds=r.getrandbits(50)), lambda v: v
        - timedelta(microseconds=1)),
    "decimal(12,3)": (lambda r: Decimal(r.randint(-(10**11), 10**11)).scaleb(-3), lambda v: v + Decimal("0.001")),
    "decimal(38,9)": (lambda r: Decimal(r.getrandbits(90)).scaleb(-9), lambda v: v + Decimal("0.000000001")),
    "list<string>": (lambda r: [_text(r), None, ""][: r.randint(1, 3)], lambda v: [*v, None]),
    'struct<"a":int32,"b b":string>': (lambda r: {"a": r.getrandbits(20), "b b": _text(r)}, lambda v: v
        | {"b b": None}),
}  # fmt: skip
"""By type: a value, and another one that is as near to it as can be."""


@pytest.mark.parametrize("subject", turns("delta", "iceberg", "memory", "postgresql", "mysql"), indirect=True)
def test_a_thousand_differences_of_all_types_are_found_and_no_other(subject: Subject) -> None:
    """Each by itself, in a row of its own: a value that is the next one, or NULL, or was NULL; a row that is missing,
    or should not be there. (By SQL, under writers and kills: `tests/soak/test_soak_verification.py`.)"""
    random, kinds = Random(11), [kind for kind in VALUES if kind not in subject.lacking]
    names = [f"c{number}" for number in range(len(kinds))]
    schema = table_schema([("id", "int64"), ("part", "string"), *zip(names, kinds, strict=True)], ["part", "id"])
    source: dict[tuple[str, int], dict[str, Any]] = {}
    for id_ in range(3 * PLANTS):
        values = (None if random.random() < 0.1 else VALUES[kind][0](random) for kind in kinds)
        source[random.choice("abc"), id_] = dict(zip(names, values, strict=True))
    there = {key: dict(row) for key, row in source.items()}
    chosen = random.sample(list(source), PLANTS)
    expected = dict[Key, tuple[str, tuple[str, ...]]]()
    for key in chosen[:MISSING]:
        del there[key]
        expected[key[0], str(key[1])] = ("missing", ())
    for key in chosen[MISSING : MISSING + EXTRA]:
        del source[key]
        expected[key[0], str(key[1])] = ("extra", ())
    planted = Counter[str]()
    for key, (name, kind) in zip(chosen[MISSING + EXTRA :], cycle(zip(names, kinds, strict=True)), strict=False):
        make, next_to = VALUES[kind]
        before = there[key][name]
        there[key][name] = make(random) if before is None else None if random.random() < 0.2 else next_to(before)
        expected[key[0], str(key[1])] = ("different", (name,))
        planted[kind] += 1
    assert len(expected) == PLANTS == planted.total() + MISSING + EXTRA
    assert planted.keys() == set(kinds) and min(planted.values()) >= 40, "all types, and each of them often"

    def table(rows: dict[tuple[str, int], dict[str, Any]]) -> pa.Table:
        types = {column.name: arrow_type(column.type) for column in schema.columns}
        made = [{"id": id_, "part": part, **values} for (part, id_), values in sorted(rows.items())]
        return pa.table({name: pa.array([row[name] for row in made], kind) for name, kind in types.items()})

    chunk, rest, _ = found_in(subject, schema, table(there), table(source))
    total = chunk.found + rest.found
    found = {each.key: (each.kind, each.columns) for each in (*chunk.found.examples, *rest.found.examples)}
    assert found == expected
    assert (total.missing, total.extra, total.different) == (MISSING, EXTRA, planted.total())
    assert (total.rows, total.undecided) == (len(source), 0)
    by_kind = {kind: dict(total.columns)[name] for name, kind in zip(names, kinds, strict=True)}
    assert by_kind == dict(planted)


KEYS: dict[str, tuple[object, object]] = {
    "bool": (False, True),
    "int32": (-1, 2),
    "int64": (1, 2**53 + 1),
    "decimal(12,3)": (Decimal("0.001"), Decimal("-7.250")),
    "string": ("a", "ü 'b'"),
    "binary": (b"\x00", b"\xff\x01"),
    "date": (date(2024, 1, 1), date(1969, 7, 20)),
    "timestamp": (datetime(2024, 1, 1), datetime(1969, 7, 20, 1, 2, 3, 4)),
    "timestamptz": (datetime(2024, 1, 1, tzinfo=UTC), datetime(1969, 7, 20, 1, 2, 3, 4, tzinfo=UTC)),
}


def test_an_extra_row_is_named_by_its_key_of_every_type(subject: Subject) -> None:
    kinds = {kind: pair for kind, pair in KEYS.items() if kind not in subject.lacking}
    schema = table_schema([(f"c{n}", kind) for n, kind in enumerate(kinds)], [f"c{n}" for n in range(len(kinds))])
    names, types = [c.name for c in schema.columns], [arrow_type(kind) for kind in kinds]
    rows = pa.table([pa.array(pair, t) for pair, t in zip(kinds.values(), types, strict=True)], names=names)
    equal, rest, _ = found_in(subject, schema, rows, rows.slice(0, 1))
    assert equal.found == ComparisonResult(rows=1)
    (extra,) = keys.keys([column.combine_chunks() for column in rows.slice(1, 1).columns])
    assert rest.found.examples == (RowDifference(kind="extra", key=extra),)


@pytest.mark.parametrize("subject", [*turns("delta", "iceberg"), "postgresql", "mysql"], indirect=True)
def test_rows_without_a_key_are_compared_to_their_last_digit(subject: Subject) -> None:
    schema = table_schema([("f", "float32"), ("d", "float64"), ("t", "string")], []).model_copy(
        update={"keyless": True}
    )

    def rows(*listed: tuple[float | None, float | None, str | None]) -> pa.Table:
        kinds = (pa.float32(), pa.float64(), pa.string())
        return pa.table(
            [pa.array(c, k) for c, k in zip(zip(*listed, strict=True), kinds, strict=True)], names=list("fdt")
        )

    last = float(np.nextafter(np.float32(0.1), np.float32(1)))
    source = rows((0.1, 0.1, "a"), (0.1, 0.1, "a"), (None, 0.5, ""), (1.0, -0.0, "b"))
    there = rows((0.1, 0.1, "a"), (last, 0.1, "a"), (None, 0.5, None), (1.0, -0.0, "b"))
    assert not found_in(subject, schema, source, source)[0].found.differences
    found = found_in(subject, schema.model_copy(update={"table_name": "other", "table_id": 8}), there, source)[0].found
    assert (found.rows, found.missing, found.extra) == (4, 2, 2)
