"""How a batch of changes finds and changes the rows of a copy in PostgreSQL."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from psycopg import Cursor
from typing_extensions import override

from support.conforming import Database, LogOf, LogOfWholeRows, Table
from support.postgres import PostgresServer
from support.random_log import KeyOf, first_schema
from tailrace.batch.rule import Change
from tailrace.targets.postgresql import session
from tailrace.targets.sql import batch

MANY = session.FEW + 100
"""More rows than a statement lists."""


class LogOfUpdates(LogOf):
    """A log that updates each row of which it knows."""

    turned = False
    """The first row gets the value that the last one had, and so on."""

    @override
    def _changes(self, count: int) -> list[Change[KeyOf]]:
        keys = self.keys[:count]
        values = [f"{key[0]} after" for key in (reversed(keys) if self.turned else keys)]
        return [self._add("U", key, (*key, value, 0.5)) for key, value in zip(keys, values, strict=True)]


class Copied:
    """A copy whose rows nobody has changed yet."""

    def __init__(self, server: PostgresServer, folder: Path, rows: int, changed: int) -> None:
        (folder / "log").mkdir()
        self.server, self.rows, self.changed = server, rows, changed
        self.subject = Database(folder, server)
        self.table = Table(self.subject, first_schema(composite=False))
        server.execute("ALTER TABLE public.t SET (autovacuum_enabled = false)")
        server.execute(f"INSERT INTO public.t SELECT n, 'before', n FROM generate_series(1, {rows}) n")
        server.execute("ANALYZE public.t")
        keys: list[KeyOf] = [(1 + n * (rows // changed),) for n in range(changed)]
        self.log = LogOfUpdates(Random(1), folder, self.table.schema, keys, self.table)

    def follow(self) -> None:
        self.log.grow_by_changes(self.changed)
        self.table.follow(self.log)

    def check(self) -> None:
        """The rows are those of the source."""
        changed = {key[0] for key in self.log.keys}
        wanted = ((n, f"{n} after", 0.5) if n in changed else (n, "before", n) for n in range(1, self.rows + 1))
        assert self.server.execute("SELECT * FROM public.t ORDER BY id") == list(wanted)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.fixture(autouse=True)
def empty(server: PostgresServer) -> None:
    server.execute("DROP SCHEMA IF EXISTS public, _tailrace CASCADE; CREATE SCHEMA public")


def test_a_batch_reads_no_whole_table_for_few_of_its_rows(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the planner takes the pages of a key for dearer than they are."""
    copied, plans = Copied(server, tmp_path, 60_000, MANY), list[str]()
    execute = session.PgTargetSession._execute

    def explained(self: session.PgTargetSession, statement: str, values: Sequence[object]) -> Cursor[Any]:
        if statement.startswith("DELETE"):
            plans.extend(str(line) for (line,) in execute(self, f"EXPLAIN {statement}", values))
        return execute(self, statement, values)

    monkeypatch.setattr(session.PgTargetSession, "_execute", explained)
    copied.follow()
    copied.check()
    plan = "\n".join(plans)
    assert "Index Scan using t_pkey on t" in plan and "Seq Scan on t " not in plan


@pytest.mark.parametrize("changed", [10, MANY])
def test_a_row_that_another_program_has_deleted_is_there_again(
    server: PostgresServer, tmp_path: Path, changed: int
) -> None:
    copied = Copied(server, tmp_path, 2 * changed, changed)
    server.execute("DELETE FROM public.t WHERE id < 8")
    copied.follow()
    server.execute("INSERT INTO public.t SELECT n, 'before', n FROM generate_series(2, 7, 2) n")  # nobody changed them
    copied.check()


@pytest.mark.parametrize("changed", [10, MANY])
def test_values_move_between_rows_under_a_unique_index(server: PostgresServer, tmp_path: Path, changed: int) -> None:
    copied = Copied(server, tmp_path, changed, changed)
    copied.follow()
    server.execute("CREATE UNIQUE INDEX ON public.t (t)")
    copied.log.turned = True
    copied.follow()
    wanted = [(n, f"{changed + 1 - n} after", 0.5) for n in range(1, changed + 1)]
    assert server.execute("SELECT * FROM public.t ORDER BY id") == wanted


@pytest.mark.parametrize("changed", [10, MANY])
def test_rows_are_written_in_the_order_of_their_key(server: PostgresServer, tmp_path: Path, changed: int) -> None:
    copied = Copied(server, tmp_path, 2 * changed, changed)
    Random(2).shuffle(copied.log.keys)
    copied.follow()
    written = server.execute("SELECT id FROM public.t WHERE t <> 'before' ORDER BY ctid")
    assert written == sorted(copied.log.keys)


def test_few_changes_of_whole_rows_are_worked_without_arrays(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arrays(*_: object) -> None:
        raise AssertionError("the batch is worked with arrays")

    monkeypatch.setattr(batch, "number_keys", arrays)
    (tmp_path / "log").mkdir()
    table = Table(Database(tmp_path, server), first_schema(composite=False))
    log = LogOfWholeRows(Random(1), tmp_path, table.schema, [(n,) for n in range(20)], table)
    log.grow_by_changes(200)
    table.follow(log)
    newest = {change.key: change for change, _ in log.history}
    wanted = sorted(change.values for change in newest.values() if change.op != "D")
    assert server.execute("SELECT * FROM public.t ORDER BY id") == wanted
