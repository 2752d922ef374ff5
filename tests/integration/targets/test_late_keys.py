"""The key of a copy in PostgreSQL that is read for the first time: it is built when the rows are there, and before
anything comes that could need it (`targets.sql.first_copy`)."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from support.conforming import Database, Table
from support.postgres import PostgresServer
from support.random_log import first_schema
from support.read_ranges import ReadRanges
from tailrace.changelog.records.terms import RecordNumber, TableSchema
from tailrace.databases.postgresql import connect
from tailrace.errors import Fenced
from tailrace.targets.api import NeededChunks
from tailrace.targets.sql import first_copy, loaded

KEY = "SELECT conname FROM pg_constraint WHERE conrelid = 'public.t'::regclass AND contype = 'p'"


class Copied:
    """A table whose rows a snapshot reads in three ranges; nothing is written meanwhile."""

    def __init__(
        self,
        server: PostgresServer,
        folder: Path,
        schema: TableSchema | None = None,
        source: str = "mysql",
        ranges: type[ReadRanges] = ReadRanges,
    ) -> None:
        (folder / "log").mkdir()
        self.server = server
        self.subject = Database(folder, server, source=source)
        self.admits = True
        self.table = Table(self.subject, schema or first_schema(composite=False), admit=self._admit)
        self.log = ranges(Random(1), folder, self.table.schema, [], self.table)
        self.log.source = {key: self.log._row((key,)) for key in range(40)}
        self.log.record = RecordNumber(2)

    def _admit(self) -> None:
        if not self.admits:
            raise Fenced("another driver owns the change log", "")

    def has_key(self) -> bool:
        return self.server.execute(KEY) == [("t_pkey",)]

    def read(self, *numbers: int, follow: bool = True) -> None:
        for number in numbers:
            self.log.record = RecordNumber(self.log.record + 1)
            self.log.read(number, range(14 * number, 14 * number + 14))
        if follow:
            self.table.follow(self.log)

    def check(self) -> None:
        names = [column.name for column in self.log.schema.columns]
        wanted = [dict(zip(names, row, strict=True)) for row in self.log.source.values()]
        found = self.subject.rows(self.table.schema)
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))
        assert self.has_key()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.fixture
def copied(server: PostgresServer, tmp_path: Path) -> Copied:
    server.execute("DROP SCHEMA IF EXISTS public, _tailrace CASCADE; CREATE SCHEMA public")
    return Copied(server, tmp_path)


def test_the_key_is_built_in_the_transaction_that_holds_the_snapshot_s_end(copied: Copied) -> None:
    assert copied.has_key()
    for number in range(3):
        copied.read(number)
        assert not copied.has_key()
    copied.log.finish()
    copied.table.follow(copied.log)
    copied.check()


def test_the_key_is_built_before_the_first_change(copied: Copied) -> None:
    copied.read(0)
    assert not copied.has_key()
    copied.log.change(5)
    copied.table.follow(copied.log)
    assert copied.has_key()
    copied.read(1, 2)
    copied.log.finish()
    copied.table.follow(copied.log)
    copied.check()


def test_a_driver_that_finds_a_copy_without_a_key_builds_it(copied: Copied) -> None:
    copied.read(0)
    copied.table.restart()
    copied.read(1)
    assert copied.has_key()
    copied.read(2)
    copied.log.finish()
    copied.table.follow(copied.log)
    copied.check()


def test_a_range_that_is_read_again_brings_no_row_twice(copied: Copied) -> None:
    copied.read(0, 1)
    copied.read(0)
    assert copied.has_key()
    copied.read(2)
    copied.log.finish()
    copied.table.follow(copied.log)
    copied.check()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("at", ["first", "middle", "end"])
def test_a_batch_that_dies_before_its_commit_leaves_the_copy_as_it_was(copied: Copied, at: str, restarts: bool) -> None:
    before = {"first": 0, "middle": 1, "end": 3}[at]
    copied.read(*range(before), follow=bool(before))
    if at == "end":
        copied.log.finish()
    else:
        copied.read(before, follow=False)
        before += 1
    copied.admits = False
    keyed = copied.has_key()
    with pytest.raises(Fenced):
        copied.table.follow(copied.log)
    assert copied.has_key() == keyed == (at == "first")
    copied.admits = True
    if restarts:
        copied.table.restart()
    else:
        copied.table.open()
    copied.table.follow(copied.log)
    if at != "end":
        copied.read(*range(before, 3))
        copied.log.finish()
        copied.table.follow(copied.log)
    copied.check()


def test_a_snapshot_that_is_given_up_leaves_a_copy_with_its_key(copied: Copied) -> None:
    copied.read(0)
    copied.table.unit.tidy(copied.table.schema, copied.table.applied, NeededChunks(reading=True), 4e9)
    assert not copied.has_key()
    copied.table.restart()
    copied.table.unit.tidy(copied.table.schema, copied.table.applied, NeededChunks(), 4e9)
    assert copied.has_key()


@pytest.mark.parametrize("limit", ["rows", "chunks"])
def test_large_copies_have_their_key_before_the_end(
    copied: Copied, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    if limit == "rows":
        monkeypatch.setattr(loaded, "MOST_ROWS", 20)
    else:
        monkeypatch.setattr(first_copy, "MOST_CHUNKS", 1)
    copied.read(0)
    assert not copied.has_key()
    copied.read(1)  # it was loaded into the copy by then; no other one is
    assert not copied.has_key()
    copied.read(2)
    assert copied.has_key()


IN_USE = {
    "a reader": "SELECT * FROM public.t",
    "a foreign key": "CREATE TABLE public.other (id bigint REFERENCES public.t)",
    "a replica identity": "ALTER TABLE public.t REPLICA IDENTITY USING INDEX t_pkey",
    "a publication": "CREATE PUBLICATION copies FOR TABLE public.t",
    "a view": "CREATE VIEW public.v AS SELECT id, t FROM public.t GROUP BY id",
    "rows": "",
}


@pytest.mark.parametrize("use", IN_USE)
def test_a_key_that_something_uses_is_kept(copied: Copied, use: str) -> None:
    if use == "rows":
        copied.log.change(3)
        copied.table.follow(copied.log)
    with copied.server.connect() as connection:
        connection.autocommit = use != "a reader"
        if IN_USE[use]:
            connection.execute(IN_USE[use].encode())
        copied.read(0)
        assert copied.has_key()
    copied.read(1, 2)
    copied.log.finish()
    copied.table.follow(copied.log)
    copied.check()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_reader_of_the_copy_delays_its_key_and_nothing_else(
    copied: Copied, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    monkeypatch.setitem(connect.SETTINGS, "lock_timeout", "50ms")
    copied.table.restart()
    copied.read(0, 1)
    assert not copied.has_key()
    with copied.server.connect() as connection:
        connection.autocommit = False
        connection.execute("SELECT * FROM public.t")
        copied.log.change(5)
        copied.table.follow(copied.log)
        copied.read(2)
        copied.log.finish()
        copied.log.change(6)
        copied.log.change(5)
        copied.table.follow(copied.log)
        assert not copied.has_key()
    if restarts:
        copied.table.restart()
    copied.table.unit.tidy(copied.table.schema, copied.table.applied, NeededChunks(), 4e9)
    copied.check()


BESIDE = {
    "an index of other columns": "CREATE UNIQUE INDEX ON public.t (id, t)",
    "an index of some rows": "CREATE UNIQUE INDEX ON public.t (id) WHERE id > 3",
}


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("beside", BESIDE)
def test_another_unique_index_is_not_taken_for_the_key(copied: Copied, beside: str, before: bool) -> None:
    if before:
        copied.server.execute(BESIDE[beside])
    copied.read(0)
    assert not copied.has_key()
    if not before:
        copied.server.execute(BESIDE[beside])
    copied.table.restart()
    copied.read(1, 2)
    copied.log.finish()
    copied.table.follow(copied.log)
    copied.check()


def test_a_table_that_comes_whole_in_one_batch_keeps_its_key(copied: Copied) -> None:
    """Its deferred triggers, and what the end of the snapshot does to its rows, may need it."""
    copied.server.execute(
        "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        " CREATE CONSTRAINT TRIGGER late AFTER INSERT ON public.t DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION public.nothing();"
        " ALTER TABLE public.t ENABLE ALWAYS TRIGGER late"
    )
    copied.read(0, 1, 2, follow=False)
    copied.log.finish()
    copied.table.follow(copied.log)
    copied.check()
