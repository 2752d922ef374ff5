"""`onSchemaChange: Evolve`: whatever happens to the columns and the key of a table, it ends as the table is then."""

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count, zip_longest
from pathlib import Path
from random import Random

import psycopg
import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.in_place import reads
from support.ddl.in_process import InProcess, in_process
from support.ddl.verify import Verdict, verify
from support.postgres import PostgresServer
from support.versions import turns

NUMBERS = count()
CHANGES = (
    "ALTER TABLE s.t DROP COLUMN b",
    "ALTER TABLE s.t RENAME b TO c",
    "ALTER TABLE s.t ALTER n TYPE text",
    "ALTER TABLE s.t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, a)",
    "ALTER TABLE s.t ALTER b SET NOT NULL, ALTER a DROP NOT NULL; ALTER TABLE s.t RENAME a TO x;"
    " ALTER TABLE s.t RENAME b TO a; ALTER TABLE s.t RENAME x TO b",
    "ALTER TABLE s.t DROP COLUMN b; ALTER TABLE s.t ADD COLUMN b int DEFAULT 7",
    "ALTER TABLE s.t ADD COLUMN k serial, DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (k)",
)
TABLE = "CREATE TABLE s.t (id int PRIMARY KEY, a text NOT NULL DEFAULT 'a', b text DEFAULT 'd', n int)"
FIRST_ROWS = "INSERT INTO s.t SELECT g, 'a' || g, 'b' || g, g FROM generate_series(1, 20) g"
ROWS = (
    "INSERT INTO s.t (id, a, b) VALUES ({0}, 'x', 'y'); UPDATE s.t SET a = a || '!' WHERE id < 5;"
    " DELETE FROM s.t WHERE id = {1}"
)
LATER_ROWS = ROWS.replace("b)", "n)").replace("'y'", "'3'")
"""After a change, by which `b` may be gone."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18) as started:
        yield started


@pytest.fixture
def one(tmp_path: Path, fork_server: ForkServer, server: PostgresServer) -> Iterator[InProcess]:
    with in_process(server, fork_server, tmp_path, f"evolve{next(NUMBERS)}", onSchemaChange="Evolve") as one:
        one.sql("CREATE SCHEMA s")
        one.sql(TABLE)
        one.sql(FIRST_ROWS)
        one.start()
        one.settle()
        yield one


IN_PLACE = (
    ("ALTER TABLE s.t DROP COLUMN b",),
    ("ALTER TABLE s.t RENAME b TO c", "ALTER TABLE s.t RENAME c TO d"),
    ("ALTER TABLE s.t DROP COLUMN b", "ALTER TABLE s.t ADD COLUMN b text"),
    ("ALTER TABLE s.t RENAME b TO x; ALTER TABLE s.t RENAME a TO b; ALTER TABLE s.t RENAME x TO a",),
    ("ALTER TABLE s.t DROP COLUMN b; ALTER TABLE s.t RENAME a TO b",),
    ("ALTER TABLE s.t RENAME b TO c; ALTER TABLE s.t ADD COLUMN b text",),
)
"""What is followed without a row read again; between the parts rows come, and the catalog is looked at."""
TYPED_ROWS = (
    "INSERT INTO s.t (id) VALUES ({0}); DELETE FROM s.t WHERE id = {1};"
    " UPDATE s.t SET id = id + 1000 WHERE id = {1} + 1"
)
OTHER_ROWS = (
    "INSERT INTO s.t (id, n) VALUES ({0}, 3); UPDATE s.t SET n = n + 1 WHERE id < 5; DELETE FROM s.t WHERE id = {1}"
)


def verdict(one: InProcess) -> Verdict:
    return verify(one, one.settle())


Parts = tuple[str, ...]


def of_table(number: int, text: str) -> str:
    """The same for `s.t<number>`; the first is `s.t`."""
    return re.sub(r"(?<=\bs\.)t\b|\bt(?=_pkey)", f"t{number or ''}", text)


def seen_together(changes: Sequence[Parts], seen_by: str) -> Sequence[Sequence[Parts]]:
    """Which of the changes happen at once, to a table each: after a kill all, since one look finds them all. With no
    look, rows are the first of each table's changes only if it has them alone."""
    return [changes] if seen_by == "kill" else [[parts] for parts in changes]


def altered(one: InProcess, changes: Sequence[Parts], rows: str, seen_by: str) -> None:
    """Rows before and after each part. It is first seen by the rows, with no look, or by a process that was down."""
    for number, parts in enumerate(zip_longest(*changes)):
        there = [(table, part) for table, part in enumerate(parts) if part is not None]
        for table, _ in there:
            one.sql(of_table(table, rows.format(100 + number, 10 + number)))
        if seen_by == "kill":
            one.stop(kill=True)
        one.gate(seen_by == "rows")
        for table, part in there:
            one.sql(of_table(table, part))
            one.sql(of_table(table, rows.format(200 + number, 15 + number)))
        if seen_by == "kill":
            one.start()
        one.turn()
        assert verdict(one) == Verdict((), {}), parts


def begin_anew(one: InProcess, tables: int = 1) -> None:
    """So many tables as at the beginning, `s.t` among them."""
    for number in range(tables):
        for text in ("DROP TABLE IF EXISTS s.t", TABLE, FIRST_ROWS):
            one.sql(of_table(number, text))
    assert verdict(one) == Verdict((), {})


@pytest.mark.parametrize("killed", turns(False, True))
def test_every_change_of_form_is_followed(one: InProcess, killed: bool) -> None:
    """Each in a table of its own."""
    begin_anew(one, len(CHANGES))
    for table, change in enumerate(CHANGES):
        for text in (ROWS.format(100, 10), change, LATER_ROWS.format(200, 11)):
            one.sql(of_table(table, text))
    if killed:
        one.turn()
        one.stop(kill=True)
        for table in range(len(CHANGES)):
            one.sql(of_table(table, LATER_ROWS.format(300, 12)))
        one.start()
    assert verdict(one) == Verdict((), {})


@pytest.mark.parametrize("seen_by", turns("rows", "kill"))
def test_dropped_and_renamed_columns_are_followed_and_no_row_is_read_again(one: InProcess, seen_by: str) -> None:
    """By the first row in the new form before anybody looks, and by a process that was down meanwhile: each a half.
    (All, by looks and rows in any order: `tests/soak/test_soak_in_place.py`.)"""
    for changes in seen_together(IN_PLACE[seen_by == "kill" :: 2], seen_by):
        begin_anew(one, len(changes))
        before = reads(one.settle())
        altered(one, changes, OTHER_ROWS, seen_by)
        after = one.settle()
        assert reads(after) == before, changes
        for table, parts in enumerate(changes):
            assert after.tables[one.table_id(f"t{table or ''}")].schema.version > len(parts)


RETYPED = (
    ("ALTER TABLE s.t ALTER n TYPE text",),
    ("ALTER TABLE s.t ALTER n TYPE bigint", "ALTER TABLE s.t ALTER n TYPE numeric(20, 3)"),
    ("ALTER TABLE s.t ALTER b DROP DEFAULT, DROP COLUMN a; ALTER TABLE s.t ALTER b TYPE bytea USING b::bytea",),
    ("ALTER TABLE s.t ALTER n TYPE bigint; ALTER TABLE s.t RENAME n TO x; ALTER TABLE s.t RENAME b TO n",
     "ALTER TABLE s.t ALTER x TYPE int; ALTER TABLE s.t ADD COLUMN b date DEFAULT '2026-01-01'"),
    ("ALTER TABLE s.t ALTER b TYPE varchar(900)",),
    ("ALTER TABLE s.t ALTER n TYPE int8", "ALTER TABLE s.t ALTER n TYPE int4", "ALTER TABLE s.t ALTER n TYPE int8"),
)  # fmt: skip
"""What other rows than those of the log must be read again for, and nothing starts over."""


@pytest.mark.parametrize("seen_by", turns("rows", "kill"))
def test_columns_of_another_type_have_their_rows_read_again_and_the_target_keeps_its_others(
    one: InProcess, seen_by: str
) -> None:
    for changes in seen_together(RETYPED, seen_by):
        begin_anew(one, len(changes))
        before, _ = reads(one.settle())
        altered(one, changes, TYPED_ROWS, seen_by)
        assert reads(one.settle())[0] == before, changes


WAITING = (
    "ALTER TABLE s.t DROP COLUMN b; ALTER TABLE s.t ADD COLUMN b text; INSERT INTO s.t (id, b) VALUES (50, 'new')",
    "ALTER TABLE s.t ADD COLUMN c text; INSERT INTO s.t (id, c) VALUES (60, 'c')",
)


@contextmanager
def nobody_confirms(server: PostgresServer) -> Iterator[psycopg.Connection]:
    """Commits with `synchronous_commit = on` wait for a standby that does not exist."""
    with server.connect() as connection:
        try:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            connection.execute("SELECT pg_reload_conf()")
            yield connection
        finally:  # or the end of the test would wait as well
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")


def test_a_commit_that_waits_for_a_standby_is_in_the_log_before_the_catalog_shows_it(
    one: InProcess, server: PostgresServer
) -> None:
    """Whoever asks the catalog in between is told the columns from before the change."""
    one.sql(f"ALTER DATABASE {one.database} SET synchronous_commit = local")
    for session in list(one.sessions):
        session.close()
    one.stop()
    one.start()
    with nobody_confirms(server) as connection:
        for change in WAITING:
            one.sql("SET synchronous_commit = on", "waiting")
            one.gate(True)
            waiter = threading.Thread(target=one.sql, args=(change, "waiting"), daemon=True)
            waiter.start()
            state = one.turn()
            before, end = state.last_seq, time.monotonic() + 120
            while state.last_seq == before and not any(t.stopped for t in state.tables.values()):
                assert time.monotonic() < end, "the log has not brought it"
                state = one.turn()
            pid = one.session("waiting").info.backend_pid
            connection.execute("SELECT pg_cancel_backend(%s)", (pid,))  # it is committed, and waits no longer
            waiter.join(60)
            one.gate(False)
            assert verdict(one) == Verdict((), {}), change


def test_what_cannot_be_copied_stays_stopped_until_it_can(one: InProcess) -> None:
    """The new form is refused itself: nothing goes round in circles, and what the source mends is followed."""
    one.sql("ALTER TABLE s.t DROP CONSTRAINT t_pkey, DROP COLUMN b")
    before = one.settle()
    assert [t.stopped.error for t in before.tables.values() if t.stopped] == ["NoKey"]
    one.sql("ALTER TABLE s.t ADD PRIMARY KEY (id)")
    assert verdict(one) == Verdict((), {})


def test_a_table_has_a_policy_of_its_own(one: InProcess) -> None:
    one.stop()
    one.spec["options"] = [{"match": "s.t", "onSchemaChange": "EvolveAdditive"}]
    one.start()
    one.sql("ALTER TABLE s.t DROP COLUMN b")
    stopped = verdict(one).stopped
    assert list(stopped) == ["s.t"] and stopped["s.t"].startswith("SchemaChangeUnsupported")
    one.stop()
    del one.spec["options"]
    one.start()
    assert verdict(one) == Verdict((), {})


ADDED = (
    "ALTER TABLE s.t ADD COLUMN c int",
    "ALTER TABLE s.t ADD COLUMN c text DEFAULT 'c'",
    "ALTER TABLE s.t ADD COLUMN c int, DROP COLUMN b",
)


@pytest.mark.parametrize("seen_by", turns("rows", "look", "kill"))
def test_a_table_that_is_to_stand_still_stops_at_every_change_of_its_columns(one: InProcess, seen_by: str) -> None:
    """Before anything of the new form is applied; another policy goes on."""
    for change in ADDED:
        one.stop()
        one.spec["onSchemaChange"] = "Stop"
        one.start()
        before = one.lake.table("s", "t").rows().sort_by("id")
        if seen_by == "kill":
            one.stop(kill=True)
        one.gate(seen_by == "rows")
        one.sql(change)
        if seen_by != "look":
            one.sql("INSERT INTO s.t (id, c) VALUES (900, NULL)")
        if seen_by == "kill":
            one.start()
        one.turn()
        stopped = verdict(one).stopped
        assert stopped["s.t"].startswith("SchemaChangeUnsupported"), change
        assert one.lake.table("s", "t").rows().sort_by("id") == before
        one.stop()
        one.spec["onSchemaChange"] = "Evolve"
        one.start()
        assert verdict(one) == Verdict((), {}), change
        begin_anew(one)


def test_a_table_that_is_to_stand_still_takes_the_columns_that_its_options_name(one: InProcess) -> None:
    one.stop()
    one.spec |= {"onSchemaChange": "Stop", "options": [{"match": "s.t", "columns": ["id", "a"]}]}
    one.start()
    one.ask(["s.t"], resync=True)
    one.settle()
    assert one.lake.table("s", "t").rows().column_names == ["id", "a"]
    one.sql("ALTER TABLE s.t ADD COLUMN c int")  # which they do not
    one.sql("UPDATE s.t SET c = 1 WHERE id = 1")
    one.stop()
    one.spec["options"][0]["columns"].append("b")
    one.start()
    assert not one.settle().tables[one.table_id("t")].stopped
    assert one.lake.table("s", "t").rows().column_names == ["id", "a", "b"]


BALANCE = (100, 5050)
"""Rows of `s.t`, and the sum of `n`: no transaction changes either."""
MOVES = "UPDATE s.t SET n = n + CASE WHEN id = {0} THEN 1 ELSE -1 END WHERE id IN ({0}, {1})"
READ_AGAIN = (
    "ALTER TABLE s.t DROP COLUMN b; ALTER TABLE s.t ADD COLUMN b int DEFAULT 7",
    "ALTER TABLE s.t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, a)",
    "ALTER TABLE s.t RENAME a TO c; ALTER TABLE s.t ALTER id TYPE bigint",
    "ALTER TABLE s.t RENAME TO u; CREATE TABLE s.t (LIKE s.u INCLUDING ALL); INSERT INTO s.t SELECT * FROM s.u;"
    " DROP TABLE s.u",
)
"""None of these is followed in place."""


def seen(one: InProcess) -> tuple[int, int]:
    """What a reader finds just now: rows, and the sum of `n`."""
    rows = one.lake.table("s", "t").rows()
    return rows.num_rows, sum(rows["n"].to_pylist())


def replacing(one: InProcess) -> bool:
    assert one.driver is not None
    return any(progress.replacing for progress in one.driver.progress.all().values())


def read_again(one: InProcess, random: Random, kills: int, change: str | None = None) -> int:
    """Until the new copy is complete, in another form meanwhile if there is a `change`; how often a reader looked."""
    looked, end = 0, time.monotonic() + 120
    while not replacing(one):
        assert time.monotonic() < end, "no new copy is begun"
        one.turn()
        assert seen(one) == BALANCE
    while replacing(one):
        assert time.monotonic() < end, "the new copy does not become complete"
        one.sql(MOVES.format(*random.sample(range(1, 101), 2)))
        one.turn()
        assert seen(one) == BALANCE
        looked += 1
        if looked == 2 and change is not None:
            one.sql(change)
        if kills and random.random() < 0.4:
            kills -= 1
            one.stop(kill=True)
            one.start()
    return looked


def test_readers_see_the_table_as_it_was_until_it_has_been_read_again(one: InProcess) -> None:
    """Whatever is killed, and whatever else happens to its form meanwhile."""
    random, looks = Random(5), list[int]()
    one.stop()
    one.spec["snapshot"] = {"chunkRows": 5, "parallelism": 1}
    one.start()
    one.sql("INSERT INTO s.t SELECT g, 'a' || g, 'b' || g, g FROM generate_series(21, 100) g")
    assert verdict(one) == Verdict((), {})
    for number, change in enumerate(READ_AGAIN):
        before = one.lake.table("s", "t").replacements
        one.sql(change)
        then = READ_AGAIN[0].replace("b int", "b date").replace("7", "'2026-01-01'") if number % 2 else None
        looked = read_again(one, random, kills=2, change=then)
        assert verdict(one) == Verdict((), {}), change
        looks.append(looked)
        assert seen(one) == BALANCE
        assert one.lake.table("s", "t").replacements == before + 1, "one commit shows the new copy"
    one.ask(["s.t"], resync=True)
    looks.append(read_again(one, random, kills=2))
    assert verdict(one) == Verdict((), {})
    assert max(looks) > 1, "somebody looked while the rows were read"
