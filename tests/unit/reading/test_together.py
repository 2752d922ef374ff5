"""The steps of many small tables at once: what one of them meets is its own, and all share connection and record."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from support.apply_loop import log, table
from support.states import with_snapshots
from tailrace.changelog.records import Event
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.terms import Position, RecordNumber
from tailrace.changelog.state import LogState, SnapshotState, SnapshotTable
from tailrace.errors import AuthenticationFailed, Locked, Retry
from tailrace.reading import steps, together
from tailrace.reading.executors import SMALL_TABLE_BYTES
from tailrace.reading.steps import Tools
from tailrace.reading.task import ChunkFile
from tailrace.reading.together import ChunkAsked, StartAsked
from tailrace.snapshot.chunks import begin
from tailrace.snapshot.ranges import Range
from tailrace.sources.api import ChunkRead, Writer
from tailrace.targets.api import WrittenChunk

TABLES = range(1, 6)
ROW = pa.record_batch({"id": pa.array([1], pa.int64())})
LARGE = pa.record_batch({"id": pa.array(range(SMALL_TABLE_BYTES // 8 + 1), pa.int64())})


def state_of(*tables: int) -> LogState:
    """A snapshot of each table, nothing of which has begun."""
    snapshots = {
        f"s{number}": SnapshotState(
            record=RecordNumber(1),
            plan=SnapshotPlanned(snapshot_id=f"s{number}", reason="initial", tables=(number,)),
            tables={number: SnapshotTable(table_id=number)},
        )
        for number in tables
    }
    return with_snapshots(log(*(table(number, 3) for number in tables)), snapshots)


@dataclass
class Around:
    """Source, capture and target of five tables. `faults`: what a table's step raises."""

    faults: dict[int, Exception] = field(default_factory=dict)
    rows: dict[int, pa.RecordBatch] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    state: LogState = field(default_factory=lambda: state_of(*TABLES))
    refused: Callable[[Sequence[Event]], Exception | None] = lambda events: None

    @property
    def tools(self) -> Tools:
        return cast(Tools, self)

    # ---- tools ----

    @property
    def journal(self) -> "Around":
        return self

    def refresh(self) -> LogState:
        return self.state

    @property
    def source(self) -> "Around":
        return self

    socket = Path("socket")

    def options(self) -> tuple[()]:
        return ()

    def spark(self) -> Any:
        return SimpleNamespace(sparkContext=self)

    def writers(self, table_id: int, schema: object) -> Any:
        return SimpleNamespace(write=self.write, schema=SimpleNamespace(version=1), form="f")

    def write(self, snapshot_id: str, chunk: int, rows: Any) -> WrittenChunk:
        return WrittenChunk(f"file:///{snapshot_id}", sum(t.num_rows for t in rows), 1)

    # ---- the source ----

    @contextmanager
    def session(self) -> Iterator["Around"]:
        self.told.append("session")
        yield self

    def reader(self) -> "Around":
        return self

    kept = session

    def table(self, table_id: int, options: object) -> Any:
        if table_id in self.faults:
            raise self.faults[table_id]
        return named(table_id)

    def keys(self, table: object) -> "Around":
        return self

    def estimated_rows(self, where: object) -> int:
        return 1

    def at_most(self, rows: int) -> bool:
        return True

    def bytes(self) -> int:
        return 8

    def read(self, table: Any, part: object, where: object, write: Writer) -> ChunkRead:
        number = int(table.name)
        if number in self.faults:
            raise self.faults[number]
        write(self.rows.get(number, ROW))
        return ChunkRead(1, "1:1:", Position(number), ("id",))

    # ---- capture's client ----

    def begin_chunks(self, *chunks: tuple[str, int, int]) -> None:
        self.told.append(f"begin {[table_id for _, table_id, _ in chunks]}")

    def register_chunk(self, chunk: Any, *_: object) -> None:
        self.told.append(f"register {chunk.table_id}")
        if self.faults.get(-chunk.table_id) is not None:
            raise self.faults[-chunk.table_id]

    def append(self, events: Sequence[Any], added: Mapping[int, RecordNumber]) -> RecordNumber:
        self.told.append(f"append {[event.table_id for event in events]}")
        error = self.refused(events)
        if error is not None:
            raise error
        return RecordNumber(5)

    def close(self) -> None:
        self.told.append("close")

    def __enter__(self) -> "Around":
        return self

    def __exit__(self, *_: object) -> None: ...


def named(number: int) -> Any:
    schema = SimpleNamespace(where=None, columns=(), keyless=False)
    return SimpleNamespace(name=str(number), schema=schema, stop=None, shows=lambda version: True)


def run_of(state: LogState, number: int) -> Any:
    return begin(f"s{number}", state.snapshots[f"s{number}"].tables[number], None, None)


def starts(around: Around) -> list[object]:
    asked = [StartAsked(run_of(around.state, n), around.state.tables[n], 100) for n in TABLES]
    return [what(one) for one in together.find_starts(around.tools, cast(Any, around), asked)]


def what(one: object) -> object:
    return type(one).__name__ if isinstance(one, Exception) else one.all_rows if isinstance(one, ChunkFile) else "ok"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Around], list[object]]:
    def run(around: Around) -> list[object]:
        monkeypatch.setattr(together, "CaptureClient", lambda path: around)
        asked = [ChunkAsked(run_of(around.state, n), Range(0, None, None), named(n)) for n in TABLES]
        return [what(one) for one in together.read(around.tools, asked)]

    return run


def test_the_starts_of_many_tables_share_a_session_and_a_record() -> None:
    around = Around()
    assert starts(around) == ["ok"] * 5
    assert around.told == ["session", "append [1, 2, 3, 4, 5]"]


def test_a_table_that_fails_costs_the_others_a_session_and_nothing_else() -> None:
    around = Around({2: Locked("a lock on s.t2")})
    assert starts(around) == ["ok", "Locked", "ok", "ok", "ok"]
    assert around.told == ["session", "session", "append [1, 3, 4, 5]"]


@pytest.mark.parametrize("error", [AuthenticationFailed("password authentication failed"), Retry.of_place("away")])
def test_what_all_would_meet_is_asked_once(error: Exception, read: Callable[[Around], list[object]]) -> None:
    name = type(error).__name__
    around = Around({2: error})
    assert starts(around) == ["ok"] + [name] * 4
    assert around.told == ["session", "append [1]"]
    again = Around({2: error})
    assert read(again) == [1] + [name] * 4


def test_a_record_that_is_refused_is_tried_for_each_table() -> None:
    """One of them was added again since, and its start is no longer true."""
    around = Around()

    def refused(events: Sequence[Any]) -> Exception | None:
        return Retry("table 3 was added again") if any(event.table_id == 3 for event in events) else None

    around.refused = refused
    assert starts(around) == ["ok", "ok", "Retry", "ok", "ok"]
    assert around.told[1:] == ["append [1, 2, 3, 4, 5]", *(f"append [{n}]" for n in TABLES)]


def test_a_start_that_is_recorded_is_not_recorded_again() -> None:
    around = Around()
    done = SnapshotTable(table_id=1, started=True, estimated_rows=7)
    of = around.state.snapshots["s1"].model_copy(update={"tables": {1: done}})
    asked = [StartAsked(run_of(around.state, n), around.state.tables[n], 100) for n in (1, 2)]
    around.state = with_snapshots(around.state, {**around.state.snapshots, "s1": of})
    found = together.find_starts(around.tools, cast(Any, around), asked)
    assert [one.estimated_rows for one in found if not isinstance(one, Exception)] == [7, 1]
    assert around.told == ["session", "append [2]"]


def test_the_ends_of_many_tables_are_one_record() -> None:
    around = Around()
    runs = [run_of(around.state, n) for n in TABLES]
    ended = around.state.snapshots["s4"].model_copy(update={"ended": "yes"})
    around.state = with_snapshots(around.state, {**around.state.snapshots, "s4": ended})
    errors = together.record_finishes(around.tools, cast(Any, around), runs)
    assert [error is None for error in errors] == [True, True, True, False, True]
    assert around.told == ["append [1, 2, 3, 5]"]


def test_many_small_tables_are_read_on_one_connection_and_registered_together(
    read: Callable[[Around], list[object]],
) -> None:
    around = Around({-4: Retry("ChunkTooOld")})
    assert read(around) == [1, 1, 1, "Retry", 1]
    assert around.told[:2] == ["begin [1, 2, 3, 4, 5]", "session"]
    assert sorted(around.told[2:7]) == [f"register {n}" for n in TABLES]
    assert around.told[7:] == ["close"]


def test_tables_that_are_read_do_not_wait_for_one_that_is_locked(read: Callable[[Around], list[object]]) -> None:
    around = Around({3: Locked("a lock on s.t3")})
    assert read(around) == [1, 1, "Locked", 1, 1]
    assert sorted(around.told[2:4]) == ["register 1", "register 2"]
    assert sorted(around.told[4:6]) == ["register 4", "register 5"]


def test_a_table_that_has_grown_is_read_after_the_others_like_any_large_one(
    read: Callable[[Around], list[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    around = Around(rows={2: LARGE})

    def alone(tools: Tools, run: Any, part: Range, table: Any) -> ChunkFile:
        around.told.append(f"alone {table.name}")
        return ChunkFile("f", 9, 9, "", Position(1), ())

    monkeypatch.setattr(steps, "read", alone)
    assert read(around) == [1, 9, 1, 1, 1]
    assert around.told[-2:] == ["close", "alone 2"]
