"""What every target has to keep: the points of docs/dev/adding-a-target.md, for each target that there is."""

from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from support.conforming import LogOf, LogOfWholeRows, Subject, Table, by_rule, equal, log_of, rows_of
from support.lake import table_schema
from support.random_log import KeyOf, first_schema
from support.read_ranges import ReadRanges
from support.states import chunk as made_chunk
from support.states import log_state, table_log
from support.versions import turns
from tailrace.batch.applied import Generation
from tailrace.batch.rule import TargetState
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.changelog.segments import segment_schema, write_segment
from tailrace.changelog.state import LoggedChunk, LoggedSegment, SegmentList
from tailrace.changelog.types import arrow_type
from tailrace.errors import Fenced, Stop, TableStop, TargetChanged, TargetRefused
from tailrace.targets.api import ChunkLost, NeededChunks, TableFailed
from tailrace.targets.lake.files import key_files
from tailrace.targets.lake.files.locate import CACHE
from tailrace.targets.postgresql import session as pg_session

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""


@pytest.fixture(autouse=True)
def all_keys_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the files are too small: `key_files`."""
    monkeypatch.setattr(key_files, "LEAST_ROWS", 1)
    monkeypatch.setattr(CACHE, "kept", None)  # and back at the end


def begun(
    subject: Subject, folder: Path, seed: int = 1, composite: bool = False, kind: type[LogOf] = LogOf
) -> tuple[LogOf, Table]:
    """A log and the table that follows it."""
    schema, random = first_schema(composite), Random(seed)
    keys: list[KeyOf] = [("r" * (n % 3), n) if composite else (n,) for n in range(random.randint(3, 9))]
    table = Table(subject, schema)
    return kind(random, folder, schema, keys, table), table


@pytest.mark.parametrize(("seed", "composite"), turns((1, False), (2, True), (3, False)))
def test_the_effect_of_a_batch_is_that_of_the_rule(
    subject: Subject, tmp_path: Path, seed: int, composite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pg_session, "FEW", seed % 2 and pg_session.FEW)  # keys are listed, or loaded
    log, table = begun(subject, tmp_path, seed, composite)
    target: TargetState[KeyOf] = TargetState()
    for step in range(6):
        log.grow()
        target = by_rule(log, target, table.follow(log))
        equal(subject.rows(log.table.schemas[0].table), rows_of(log, target))
        assert table.applied.holes == {tuple(map(str, key)) for key in target.holes}
        if step == 3:
            table.restart()


@pytest.mark.parametrize("composite", turns(False, True))
def test_the_effect_of_few_whole_rows_is_that_of_the_rule(subject: Subject, tmp_path: Path, composite: bool) -> None:
    log, table = begun(subject, tmp_path, 4, composite, LogOfWholeRows)
    target: TargetState[KeyOf] = TargetState()
    for _ in range(5):
        log.grow_by_changes(12)
        target = by_rule(log, target, table.follow(log))
        equal(subject.rows(table.schema), rows_of(log, target))


def test_what_a_commit_stored_of_itself_is_what_the_next_start_finds(subject: Subject, tmp_path: Path) -> None:
    log, table = begun(subject, tmp_path)
    for step in range(8):
        log.grow()
        part = cut(log.state, table.schema.table_id, table.applied, log.record)
        if part is not None:
            table.apply(part if step < 6 else replace(part, gap=RecordNumber(log.record - 1)))
        stored = table.applied
        table.restart()
        assert table.applied == stored
        if stored.gap is not None:
            break
    assert stored.gap is not None


def test_a_batch_of_a_driver_that_has_been_fenced_changes_nothing(subject: Subject, tmp_path: Path) -> None:
    log, table = begun(subject, tmp_path)
    log.grow_by_changes(5)
    table.follow(log)
    before, schema = subject.rows(table.schema), table.schema

    def fenced() -> None:
        raise Fenced("another driver owns the change log", "")

    late = Table(subject, schema, admit=fenced)
    log.grow_by_changes(5)
    with pytest.raises(Fenced):
        late.follow(log)
    equal(subject.rows(schema), before)
    table.follow(log)
    assert table.applied.applied_record == log.record


def test_a_table_of_another_change_log_and_one_of_a_later_generation_are_refused(
    subject: Subject, tmp_path: Path
) -> None:
    log, table = begun(subject, tmp_path)
    log.grow_by_changes(5)
    table.follow(log)
    before = subject.rows(table.schema)
    with pytest.raises((TargetRefused, TableFailed)) as refused:
        Table(subject, table.schema, log_id="log-2")
    assert isinstance(cause(refused.value), TargetRefused)
    later = Table(subject, table.schema, Generation(RecordNumber(5), Seq(log.seq), keeps=True))
    later.publish()
    with pytest.raises((TargetChanged, TableFailed)) as changed:
        Table(subject, table.schema, Generation())
    assert isinstance(cause(changed.value), Stop | TargetChanged)
    assert before != [] and subject.rows(table.schema) == []


def cause(error: Exception) -> Exception:
    return error.error if isinstance(error, TableFailed) else error


@pytest.mark.parametrize("keeps", turns(True, False))
def test_readers_see_the_former_generation_until_the_new_one_is_published_or_it_goes_at_once(
    subject: Subject, tmp_path: Path, keeps: bool
) -> None:
    log, table = begun(subject, tmp_path)
    log.grow_by_changes(9)
    table.follow(log)
    before = subject.rows(table.schema)
    assert before
    again = Table(subject, table.schema, Generation(RecordNumber(4), Seq(log.seq), keeps=keeps))
    assert again.replacing == keeps
    equal(subject.rows(table.schema), before if keeps else [])
    log.target, log.record = again, RecordNumber(4)
    log.table = log.table.model_copy(update={"generation": RecordNumber(4), "added_record": RecordNumber(4)})
    old = again.applied
    log.grow_by_changes(9)
    again.follow(log)
    assert again.applied.applied_seq > old.applied_seq
    if keeps:
        equal(subject.rows(table.schema), before)
        again.restart()
        assert again.replacing
        held = again.applied.applied_seq
        again.publish()
        assert again.applied.applied_seq == held  # no table was made anew
    assert not again.replacing
    found = subject.rows(table.schema)
    assert found != before
    again.restart()
    equal(subject.rows(table.schema), found)


def test_a_chunk_is_there_until_nothing_needs_it_and_one_that_is_gone_is_named(
    subject: Subject, tmp_path: Path
) -> None:
    log, table = begun(subject, tmp_path)
    log.record = RecordNumber(1)
    while len(paths := [str(chunk.path) for chunk, _ in log.chunks if chunk.path is not None]) < 2:
        log._chunk()
    needed = NeededChunks(frozenset(paths), reading=False)
    table.unit.tidy(table.schema, table.applied, needed, 4e9)
    assert all(map(subject.holds, paths))
    subject.lose(paths[-1])
    with pytest.raises((ChunkLost, TableFailed)) as lost:
        table.follow(log)
    error = cause(lost.value)
    assert isinstance(error, ChunkLost) and [chunk.path for chunk in error.chunks] == paths[-1:]
    table.open()
    assert table.applied.applied_record == 0 and subject.rows(table.schema) == []


VALUES: dict[str, object] = {
    "bool": True,
    "int32": -(2**31),
    "int64": 2**63 - 1,
    "float32": 0.1,
    "float64": float("inf"),
    "string": "\u0000ü€𝄞'\"\\\n",
    "binary": bytes(range(256)),
    "date": date(1, 1, 1),
    "time": time(23, 59, 59, 999999),
    "timestamp": datetime(9999, 12, 31, 23, 59, 59, 999999),
    "timestamptz": datetime(1582, 10, 4, tzinfo=UTC),
    "decimal(38,9)": Decimal("-99999999999999999999999999999.999999999"),
    "list<string>": ["", None, "b"],
    'struct<"a":int32,"b b":string>': {"a": None, "b b": "x"},
}


@pytest.mark.parametrize("lost", turns(0, 1))
@pytest.mark.parametrize("changes", turns(0, 3))
def test_the_end_of_a_snapshot_removes_what_the_source_lost_unnoticed_and_nothing_else(
    subject: Subject, tmp_path: Path, changes: int, lost: int
) -> None:
    table = Table(subject, first_schema(composite=False))
    log = ReadRanges(Random(changes), tmp_path, table.schema, [], table)
    log.source = {}
    log.change(60)
    table.follow(log)
    for key in sorted(log.source)[:lost]:
        del log.source[key]
    log.record = RecordNumber(log.record + 1)  # the plan
    for number in range(3):
        if changes:
            log.change(changes)
        log.read(number, range(14 * number, 14 * number + 14))
        if number == 1:
            table.follow(log)
    if changes:
        log.change(changes)
    log.finish()
    part = table.follow(log)
    assert part is not None and [finish.alone for finish in part.finished] == [True]
    names = [column.name for column in log.schema.columns]
    equal(subject.rows(table.schema), [dict(zip(names, row, strict=True)) for row in log.source.values()])


UNFIT: dict[str, object] = {"string": "a\0b", "float64": float("nan")}
FITTING: dict[str, object] = {"string": "ü€𝄞'\"\\\n", "float64": 1.7976931348623157e308}


def test_values_of_every_type_come_back_equal_by_the_log_and_by_a_chunk(subject: Subject, tmp_path: Path) -> None:
    values = VALUES | {kind: value for kind, value in FITTING.items() if kind in subject.unfit}
    kept = {kind: value for kind, value in values.items() if kind not in subject.lacking}
    kinds = [(f"c{number}", kind) for number, kind in enumerate(kept)]
    schema = table_schema([("id", "int64"), *kinds], ["id"])
    table, storage = Table(subject, schema), log_of(tmp_path)
    names = [column.name for column in schema.columns]

    def row(id_: int, *values: object) -> pa.Table:
        types = [arrow_type(column.type) for column in schema.columns]
        return pa.table([pa.array([v], kind) for v, kind in zip((id_, *values), types, strict=True)], names=names)

    nothing = [None] * len(kept)
    rows = [row(1, *kept.values()), row(2, *nothing), row(3, *kept.values()), row(4, *nothing)]
    layout = segment_schema(schema)
    logged = pa.concat_tables(rows[:2])
    own = {"_seq": [1, 2], "_op": ["I", "I"], "_commit_ts": [0, 0]}
    columns = [
        logged[field.name] if field.name in names else pa.array(own.get(field.name, [None, None]), field.type)
        for field in layout
    ]
    segment = write_segment(storage, schema, pa.table(columns, schema=layout))
    writer = table.unit.chunk_writer(schema)
    chunk = writer.write("s", 0, rows[2:])
    assert chunk is not None
    registered = made_chunk(
        schema.table_id, path=chunk.path, rows=2, size=chunk.size, replay_point=3, layout=writer.form
    )
    state = log_state(
        table_log(
            schema,
            segments=SegmentList.of([LoggedSegment(record=RecordNumber(2), segment=segment)]),
            chunks=(LoggedChunk(record=RecordNumber(2), chunk=registered),),
        ),
        number=2,
        last_seq=Seq(2),
    )
    part = cut(state, schema.table_id, table.applied, RecordNumber(2))
    assert part is not None
    table.apply(part)
    equal(subject.rows(schema), pa.concat_tables(rows).to_pylist())


@pytest.mark.parametrize(("kind", "value"), turns(*UNFIT.items()))
def test_a_value_that_the_target_cannot_hold_is_refused_with_its_column(
    subject: Subject, kind: str, value: object
) -> None:
    schema = table_schema([("id", "int64"), ("note", kind)], ["id"])
    writer = Table(subject, schema).unit.chunk_writer(schema)
    rows = pa.table({"id": [1], "note": [value]})
    if kind not in subject.unfit:
        assert writer.write("s", 0, [rows]) is not None
        return
    with pytest.raises(TableStop, match="'note'") as stopped:
        writer.write("s", 0, [rows])
    assert stopped.value.table == schema.name
