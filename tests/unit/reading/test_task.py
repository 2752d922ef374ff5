"""A chunk is read once; that of a table without a key is written as several files, for one is built in memory."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from support.scripted import V
from tailrace.changelog.records.terms import Position
from tailrace.databases.wire import WireForm, WireRefused, WireRows
from tailrace.errors import Retry
from tailrace.reading import task
from tailrace.reading.task import ChunkTask, perform
from tailrace.sources.api import ChunkRead, KeyRange, Writer
from tailrace.targets.api import WrittenChunk

BATCH = pa.record_batch({"n": pa.array(range(10), pa.int64())})


@dataclass
class Files:
    """A target that keeps what it is given."""

    rows: dict[int, list[int]] = field(default_factory=dict)
    wire: "Sent | None" = None

    def write(self, snapshot_id: str, chunk: int, rows: Iterable[pa.Table]) -> WrittenChunk | None:
        found = [n for table in rows for n in table.column("n").to_pylist()]
        self.rows[chunk] = found
        return WrittenChunk(f"file:///{chunk}", len(found), 1) if found else None

    def discard(self, paths: Sequence[str]) -> None:
        for path in paths:
            del self.rows[int(path.rpartition("/")[2])]


@dataclass
class Sent:
    """A target that takes rows as they are sent, unless it `refuses` them."""

    refuses: bool = False
    rows: list[int] = field(default_factory=list)
    form: WireForm = field(default=WireForm("a product", (("n", "a number"),)), init=False)

    def write(self, snapshot_id: str, chunk: int, rows: Iterable[WireRows]) -> WrittenChunk | None:
        found = [n for part in rows for n in part.keys.column("n").to_pylist()]
        if self.refuses:
            raise WireRefused
        self.rows = found
        return WrittenChunk(f"sent:///{chunk}", len(found), 1) if found else None


@dataclass
class Reading:
    batches: int
    cut_off: bool = False
    product: str = "another product"

    def wire(self, table: object, form: WireForm) -> "SentReading | None":
        return SentReading(self) if form.product == self.product else None

    def read(self, table: object, part: object, where: object, write: Writer) -> ChunkRead:
        for _ in range(self.batches):
            write(BATCH)
        if self.cut_off:
            raise Retry("the connection was cut")
        return ChunkRead(10 * self.batches, "1:1:", Position(9), ("n",), (("n", 1),))


@dataclass
class SentReading:
    reading: Reading

    def read(self, part: object, where: object, write: Callable[[WireRows], None]) -> ChunkRead:
        ends = np.arange(1, 11)
        found = self.reading.read(None, part, where, lambda batch: write(WireRows(b"0123456789", ends, batch)))
        return replace(found, nulled=())


def asked(batches: int, files: Files, keyless: bool, cut_off: bool = False) -> ChunkTask:
    schema = SimpleNamespace(where=None, columns=(), keyless=keyless)
    table = cast(Any, SimpleNamespace(name="s.t", schema=schema))
    return ChunkTask(cast(Any, Reading(batches, cut_off)), table, KeyRange(None, None), None, cast(Any, files), "s", 0)


def read(batches: int, files: Files, keyless: bool, cut_off: bool = False) -> task.ChunkFile:
    return perform(asked(batches, files, keyless, cut_off))


@pytest.mark.parametrize(("batches", "counts"), [(0, []), (1, [10]), (3, [20, 10]), (4, [20, 20])])
def test_the_files_of_one_reading_have_all_its_rows(
    batches: int, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "FILE_BYTES", 2 * BATCH.nbytes)
    files = Files()
    found = read(batches, files, keyless=True)
    assert [len(rows) for rows in files.rows.values()] == counts
    assert found.all_rows == 10 * batches
    paths = [found.path, *(file.path for file in found.further)]
    assert [path for path in paths if path is not None] == [f"file:///{n}" for n in files.rows]
    assert found.nulled == ((("n", 1),) if batches else ())


def test_a_chunk_of_a_table_with_a_key_is_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "FILE_BYTES", 1)
    files = Files()
    assert (read(3, files, keyless=False).further, len(files.rows[0])) == ((), 30)


def test_a_reading_that_is_cut_off_leaves_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "FILE_BYTES", 1)
    files = Files()
    with pytest.raises(Retry, match="cut"):
        read(3, files, keyless=True, cut_off=True)
    assert files.rows == {}


def sent(files: Files, cut_off: bool = False, **schema: Any) -> task.ChunkFile:
    """A chunk of ten rows, whose source is of the product of `Sent`."""
    known = SimpleNamespace(**{"where": None, "columns": (), "keyless": False} | schema)
    table = cast(Any, SimpleNamespace(name="s.t", schema=known))
    reading = cast(Any, Reading(1, cut_off, "a product"))
    return perform(ChunkTask(reading, table, KeyRange(None, None), None, cast(Any, files), "s", 0))


def test_rows_go_as_they_are_sent_between_servers_of_one_product() -> None:
    files = Files(wire=Sent())
    assert sent(files) == task.ChunkFile("sent:///0", 10, 1, "1:1:", Position(9), ("n",))
    assert files.wire is not None and files.wire.rows == list(range(10))
    assert read(1, files, keyless=False).path == "file:///0"  # of another product


@pytest.mark.parametrize("schema", [{"where": "n > 3"}, {"columns": (V.model_copy(update={"mask": "Redact"}),)}])
def test_values_are_looked_at_where_they_decide_what_is_copied(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "of_chunk", lambda batch, _: batch.slice(4))
    files = Files(wire=Sent())
    assert (sent(files, False, **schema).path, files.rows[0]) == ("file:///0", list(range(4, 10)))


def test_tables_without_a_key_are_copied_by_values() -> None:
    assert sent(Files(wire=Sent()), keyless=True).path == "file:///0"


def test_rows_that_are_not_taken_as_they_are_sent_are_read_again() -> None:
    found = sent(Files(wire=Sent(refuses=True)))
    assert (found.path, found.rows, found.nulled) == ("file:///0", 10, (("n", 1),))


def test_a_sending_that_is_cut_off_writes_nothing() -> None:
    files = Files(wire=Sent())
    with pytest.raises(Retry, match="cut"):
        sent(files, cut_off=True)
    assert files.wire is not None and files.wire.rows == [] and files.rows == {}
