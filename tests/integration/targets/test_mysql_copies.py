"""Copies in MySQL and MariaDB: rows, columns, keys, rows without a key, out of PostgreSQL and MySQL; definitions that
commit by themselves, interrupted anywhere."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from support.conforming import LogOf, MysqlDatabase, Table, log_of, no_spark
from support.counted_log import SCHEMA, TABLE
from support.database_copies import (
    DEFERRED,
    SHOP,
    STEPS,
    TABLES,
    LogOfCopies,
    begin,
    of_mysql,
    of_postgres,
    overtaken,
    place_of,
    settle,
)
from support.lake import table_schema
from support.mysql import TARGETS, MysqlServer
from support.postgres import PostgresServer
from support.proof.process import forked_copies
from support.random_log import first_schema
from support.versions import one_of
from support.waiting import until
from tailrace import targets
from tailrace.batch.applied import FIRST, Generation
from tailrace.batch.slice import cut
from tailrace.changelog.records.terms import RecordNumber, Seq, TableSchema
from tailrace.contract.resources import TargetSpec
from tailrace.databases.mysql.connect import MyConfig, execute
from tailrace.errors import TableStop, TargetRefused
from tailrace.targets.api import Opening, Runtime, TableFailed
from tailrace.targets.mysql.session import MysqlTargetSession
from tailrace.targets.mysql.turns import IDLE, RowTurn
from tailrace.targets.sql import chunk_writer
from tailrace.targets.sql.state import SCHEMA as STATE

SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")
MYSQL_SHOP = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.item (id bigint unsigned PRIMARY KEY, code varchar(40) COLLATE utf8mb4_bin NOT NULL,"
    " price decimal(9,2), at datetime(6), seen timestamp NULL, ratio double, half float, state enum('new', 'old'),"
    " marks set('a', 'b'), doc json, raw varbinary(9), born date, took time(6), big longtext)",
    "INSERT INTO shop.item VALUES (18446744073709551615, 'a\\tb  ', 1.50, '2020-01-02 03:04:05.000006',"
    " '2020-02-29 12:00:00', 1e-300, 0.1, 'old', 'a,b', '{\"b\": 1, \"a\": [null, 1.50]}', x'00ff', '1000-01-01',"
    " '23:59:59.999999', repeat('x', 70000)),"
    " (1, 'A', NULL, NULL, NULL, 0.1, 1e10, 'new', '', NULL, '', NULL, NULL, ''),"
    " (2, 'a', 0.01, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '\u00fc\u20ac\U0001d11e')",
)
MYSQL_STEPS = (
    "UPDATE shop.item SET price = price + 1 WHERE id < 3",
    "UPDATE shop.item SET id = id + 1000 WHERE id = 1",
    "UPDATE shop.item SET code = CASE id WHEN 2 THEN 'A' ELSE 'a' END WHERE id < 2000",
    "ALTER TABLE shop.item ADD COLUMN extra int; UPDATE shop.item SET extra = 7 WHERE id = 2",
    "ALTER TABLE shop.item RENAME COLUMN code TO label; UPDATE shop.item SET label = 'changed' WHERE id = 2",
    "ALTER TABLE shop.item DROP COLUMN doc; DELETE FROM shop.item WHERE id = 2",
    "TRUNCATE shop.item; INSERT INTO shop.item (id, label) VALUES (5, 'five')",
)


@pytest.fixture(scope="module")
def of_module() -> Iterator[MysqlServer]:
    with MysqlServer(one_of(TARGETS, __name__)) as server:
        yield server


@pytest.fixture
def target(of_module: MysqlServer) -> Iterator[MysqlServer]:
    yield of_module
    for (name,) in of_module.execute("SELECT schema_name FROM information_schema.schemata"):
        if name not in SYSTEM:
            of_module.execute(f"DROP DATABASE `{name}`")


@contextmanager
def demanding(server: MysqlServer, **mysql_only: str) -> Iterator[None]:
    """A server with settings that other programs' tables must obey as well."""
    own = {"innodb_force_primary_key": "ON"} if server.mariadb else mysql_only
    wanted = {"innodb_strict_mode": "OFF", "sql_mode": "'ANSI_QUOTES,PIPES_AS_CONCAT,NO_UNSIGNED_SUBTRACTION'", **own}
    names = ", ".join(f"@@GLOBAL.{name}" for name in wanted)
    before = server.execute(f"SELECT {names}")[0]
    server.execute("SET " + ", ".join(f"GLOBAL {name} = {value}" for name, value in wanted.items()))
    yield
    for name, value in zip(wanted, before, strict=True):
        server.execute(f"SET GLOBAL {name} = %s", [value])


@pytest.mark.timeout(300)
def test_rows_columns_and_keys_arrive_out_of_postgresql(
    postgres: PostgresServer, target: MysqlServer, tmp_path: Path
) -> None:
    with demanding(target, sql_require_primary_key="ON"):
        arrive_out_of_postgresql(postgres, target, tmp_path)


def arrive_out_of_postgresql(postgres: PostgresServer, target: MysqlServer, tmp_path: Path) -> None:
    postgres.execute(SHOP)
    postgres.execute(DEFERRED)
    copy = begin(postgres.source(), target, tmp_path)
    copy.start()
    settle(copy)
    for table in TABLES:
        assert of_mysql(target, f"shop.{table}") == of_postgres(postgres, f"shop.{table}")
    # People add to a copy what the source does not have: values are exchanged between keys.
    target.execute("CREATE UNIQUE INDEX code ON shop.item (code(100))")
    for number, step in enumerate(STEPS):
        if number == len(STEPS) // 2:
            copy.stop()
            copy.start()
        postgres.execute(step)
        settle(copy)
        for table in TABLES:
            assert of_mysql(target, f"shop.{table}") == of_postgres(postgres, f"shop.{table}"), step
    assert target.execute(f"SELECT count(*) FROM {STATE}.tables WHERE member") == [(2,)]
    copy.stop()


@pytest.mark.timeout(300)
def test_rows_columns_and_keys_arrive_out_of_mysql(
    mysql: MysqlServer, target: MysqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_writer, "PIECE", 50)
    with demanding(target, sql_generate_invisible_primary_key="ON"):
        arrive_out_of_mysql(mysql, target, tmp_path)


def arrive_out_of_mysql(mysql: MysqlServer, target: MysqlServer, tmp_path: Path) -> None:
    mysql.script(*MYSQL_SHOP, charset="utf8mb4")
    copy = begin(place_of(mysql), target, tmp_path)
    copy.start()
    settle(copy)
    assert of_mysql(target, "shop.item") == of_mysql(mysql, "shop.item")
    target.execute("CREATE UNIQUE INDEX code ON shop.item (code)")
    for number, step in enumerate(MYSQL_STEPS):
        if number == len(MYSQL_STEPS) // 2:
            copy.stop()
            copy.start()
        mysql.script(*step.split("; "))
        settle(copy)
        assert of_mysql(target, "shop.item") == of_mysql(mysql, "shop.item"), step
    copy.stop()


@pytest.mark.timeout(300)
def test_copies_in_one_database_are_dropped_with_their_state(
    postgres: PostgresServer, target: MysqlServer, tmp_path: Path
) -> None:
    postgres.execute(SHOP)
    copy = begin(postgres.source(), target, tmp_path, schema="copies")
    copy.start()
    settle(copy)
    copy.stop()
    for table in TABLES:
        assert of_mysql(target, f"copies.{table}") == of_postgres(postgres, f"shop.{table}")
    target.execute("CREATE TABLE copies.other (a int)")
    removal = targets.open(copy.replicator.spec.target).removal(no_spark)
    for table in TABLES:
        owner = removal.owner(("shop", table))
        assert owner is not None and not owner.altered and removal.exists(("shop", table))
        removal.drop(("shop", table))
        assert not removal.exists(("shop", table)) and removal.owner(("shop", table)) is None
    removal.finish("log")
    left = target.execute("SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN"
                          f" ('shop', 'copies', '{STATE}')")  # fmt: skip
    assert left == [("copies", "other")]


@pytest.mark.timeout(300)
def test_rows_without_a_key_are_as_many_as_in_the_source(target: MysqlServer, tmp_path: Path) -> None:
    for seed in range(8):
        folder, rnd = tmp_path / str(seed) / "log", Random(seed)
        folder.mkdir(parents=True)
        table = Table(MysqlDatabase(tmp_path / str(seed), target), SCHEMA)
        log, read = LogOfCopies(rnd, folder, table), False
        for _ in range(rnd.randint(2, 6)):
            log.grow()
            part = cut(log.state, TABLE, table.applied, RecordNumber(log.record))
            if part is not None:
                read |= bool(part.chunks)
                table.apply(part)
            if read:
                assert Counter(target.execute("SELECT * FROM public.t")) == +log.rows, f"seed {seed}"
        target.script(f"DROP DATABASE {STATE}", "DROP DATABASE public")


class Killed(Exception):
    """The driver dies."""


class Dying:
    """Lets a driver do so much, and then no more."""

    def __init__(self) -> None:
        self.left: int | None = None

    def __call__(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed


def killed_at_each_step(table: Table, dying: Dying, act: Callable[[], object]) -> int:
    """Kill at the first, the second … step, until it is done; returns the number of deaths."""
    for deaths in range(9):
        dying.left = deaths
        try:
            act()
        except Killed:
            dying.left = None
            table.restart()
        else:
            dying.left = None
            return deaths
    raise AssertionError("it never ends")


@pytest.mark.timeout(300)
def test_definitions_are_found_by_whoever_comes_after_a_death(target: MysqlServer, tmp_path: Path) -> None:
    """Each commits by itself: what was done already is recognised, and what was not is done."""
    (tmp_path / "log").mkdir()
    dying, subject = Dying(), MysqlDatabase(tmp_path, target)
    table = Table(subject, first_schema(composite=True), admit=dying)
    log = LogOf(Random(4), tmp_path, table.schema, [("r" * n, n) for n in range(5)], table)
    log.grow_by_changes(9)
    table.follow(log)
    again = Table(subject, table.schema, Generation(RecordNumber(4), Seq(log.seq), keeps=True), admit=dying)
    before = subject.rows(table.schema)

    def publish() -> None:
        if again.replacing:
            again.publish()

    assert killed_at_each_step(again, dying, publish) == 2
    assert before != subject.rows(table.schema) == []
    assert target.execute(f"SELECT hidden FROM {STATE}.tables") == [(0,)]
    left = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_name LIKE 'copy%%'"
    assert target.execute(left, [STATE]) == []


@pytest.mark.timeout(300)
def test_a_new_copy_is_not_told_as_level_before_its_batch_has_ended(
    mysql: MysqlServer, target: MysqlServer, tmp_path: Path
) -> None:
    """It takes the old one's place in a statement that commits by itself, and may stay there as it is for long."""
    mysql.script(*MYSQL_SHOP, charset="utf8mb4")
    copy = begin(place_of(mysql), target, tmp_path)
    told = f"SELECT place_name FROM {STATE}.tables WHERE member"
    with copy.running():
        settle(copy)
        mysql.script(*MYSQL_STEPS[0].split("; "))
        copy.until(lambda _: target.execute(told) == [("item",)], work=True)
    died = forked_copies(copy.manifest, tmp_path, "publish.after=kill", level=True, again="resync")
    assert died.wait(120) == -9, died.tail()
    assert target.execute(told) == []
    with copy.running():
        settle(copy)
        mysql.script(*MYSQL_STEPS[1].split("; "))
        copy.until(lambda _: target.execute(told) == [("item",)], work=True)
        settle(copy)
    assert of_mysql(target, "shop.item") == of_mysql(mysql, "shop.item")


@pytest.mark.timeout(300)
def test_copies_are_dropped_whole_after_a_death(target: MysqlServer, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    dying, subject = Dying(), MysqlDatabase(tmp_path, target)
    schema = Table(subject, first_schema(composite=True)).schema
    again = Table(subject, schema, Generation(RecordNumber(4), Seq(1), keeps=True), admit=dying)
    dying.left = 1
    with pytest.raises(Killed):
        again.publish()
    removal = targets.open(TargetSpec.model_validate(place_of(target))).removal(no_spark)
    owner = removal.owner((schema.schema_name, schema.table_name))
    assert owner is not None and not owner.altered
    removal.drop((schema.schema_name, schema.table_name))
    removal.finish("log")
    left = "SELECT table_name FROM information_schema.tables WHERE table_schema IN (%s, %s)"
    assert target.execute(left, [schema.schema_name, STATE]) == []


@pytest.mark.timeout(300)
def test_a_table_is_altered_once_whoever_dies(target: MysqlServer, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    dying, subject = Dying(), MysqlDatabase(tmp_path, target)
    first = first_schema(composite=False)
    table = Table(subject, first, admit=dying)
    log = LogOf(Random(4), tmp_path, first, [(n,) for n in range(5)], table)
    while log.schema.version == first.version or not log.state.tables:
        log.grow()
    assert killed_at_each_step(table, dying, lambda: table.follow(log)) == 2
    assert {column.name for column in log.schema.columns} == set(subject.rows(first)[0])


def refused(target: MysqlServer, schema: TableSchema, folder: Path) -> TableStop | TargetRefused:
    (folder / "log").mkdir(exist_ok=True)
    with pytest.raises((TableStop, TargetRefused, TableFailed)) as error:
        Table(MysqlDatabase(folder, target), schema)
    cause = error.value.error if isinstance(error.value, TableFailed) else error.value
    assert isinstance(cause, TableStop | TargetRefused)
    return cause


def test_what_mysql_cannot_hold_is_refused_by_name(target: MysqlServer, tmp_path: Path) -> None:
    plain_schema = table_schema([("id", "string"), ("Id", "int32")], ["id"])
    assert "'id' and 'Id'" in str(refused(target, plain_schema, tmp_path))
    long = table_schema([("x" * 65, "int32")], ["x" * 65])
    assert "column 'xxx" in str(refused(target, long, tmp_path))
    theirs = table_schema([("id", "string")], ["id"]).model_copy(update={"schema_name": "mysql"})
    assert "database mysql is the server's own" in str(refused(target, theirs, tmp_path))


def test_a_key_that_is_too_long_is_refused_by_name(target: MysqlServer, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    schema = table_schema([("id", "string"), ("n", "int32")], ["id"])
    writer = Table(MysqlDatabase(tmp_path, target), schema).unit.chunk_writer(schema)
    assert writer.write("s", 0, [pa.table({"id": ["\u20ac" * 768, "a", "a ", "A", "\u00e4"], "n": [1, 2, 3, 4, 5]})])
    with pytest.raises(TableStop, match="'id' has a value that is too large"):
        writer.write("s", 1, [pa.table({"id": ["x" * 769], "n": [1]})])


def test_rights_that_are_missing_are_named_before_anything_is_made(target: MysqlServer, tmp_path: Path) -> None:
    target.script("CREATE USER less@localhost", "CREATE USER enough@localhost",
                  f"GRANT ALL ON `{STATE}`.* TO enough@localhost")  # fmt: skip
    try:
        with pytest.raises(TargetRefused, match="GRANT ALL ON"):
            targets.open(TargetSpec.model_validate(place_of(target, "less"))).examine()
        enough = targets.open(TargetSpec.model_validate(place_of(target, "enough")))
        assert enough.examine()
        schema = table_schema([("id", "int64")], ["id"])
        unit = enough.units(Runtime(log_of(tmp_path), lambda: None, no_spark, "postgresql")).alone()
        with pytest.raises(TableFailed, match="denied") as refused:
            unit.open({schema.table_id: Opening(schema, FIRST)}, "log")
        assert isinstance(refused.value.error, TargetRefused) and "GRANT" in refused.value.error.fix
    finally:
        target.script("DROP USER less@localhost", "DROP USER enough@localhost")
    made = "SELECT schema_name FROM information_schema.schemata WHERE schema_name IN ('public', %s)"
    assert target.execute(made, [STATE]) == [(STATE,)]


@pytest.mark.timeout(300)
def test_what_is_there_and_is_not_ours_is_refused_and_left_alone(target: MysqlServer, tmp_path: Path) -> None:
    schema = table_schema([("id", "int32")], ["id"])
    target.script("CREATE DATABASE public", "CREATE TABLE public.t AS SELECT 1 AS mine")
    assert "has no record of" in str(refused(target, schema, tmp_path))
    assert target.execute("SELECT * FROM public.t") == [(1,)]
    target.execute("DROP TABLE public.t")
    Table(MysqlDatabase(tmp_path, target), schema)
    target.script("DROP TABLE public.t", "CREATE TABLE public.t AS SELECT 2 AS mine")
    assert "has no record of" in str(refused(target, schema, tmp_path))
    assert target.execute("SELECT * FROM public.t") == [(2,)]


def test_a_row_keeps_others_from_defining_tables_where_locks_have_no_names(target: MysqlServer) -> None:
    """As at the members of a Galera cluster (`tests/soak/test_soak_galera.py`)."""
    config, order = MyConfig(target.host, target.port, None, target.user, "tailrace test", part="target"), list[str]()
    with closing(MysqlTargetSession(config)) as one, closing(MysqlTargetSession(config)) as other:
        for session in (one, other):
            session._turn = RowTurn(config, session._prepare_turns)

        def define() -> None:
            with other.transaction():
                other.alone()
                order.append("other")

        waiting = threading.Thread(target=define)
        with one.transaction():
            one.alone()
            waiting.start()
            waits = "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
            until(lambda: target.execute(waits), "the other one waits")
            order.append("one")
        waiting.join()
        assert order == ["one", "other"]
        with one.transaction():
            one.alone()
            one.drop_schema(STATE)  # nothing else is in it
    found = "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s"
    assert target.execute(found, [STATE]) == []


def test_the_session_that_keeps_others_out_may_rest_while_a_table_is_defined(target: MysqlServer) -> None:
    config = MyConfig(target.host, target.port, None, target.user, "tailrace test", part="target")
    limits = [str(name) for name, _ in target.execute(IDLE)]
    for name in limits:
        target.execute(f"SET GLOBAL {name} = 1")
    try:
        with closing(MysqlTargetSession(config)) as session:
            assert len(limits) == (3 if session.server.product == "mariadb" else 0)
            turn = RowTurn(config, session._prepare_turns)
            assert turn.take()
            assert [int(seconds) for _, seconds in execute(turn._locking[0], IDLE)] == [0] * len(limits)
            turn.give_back()
    finally:
        for name in limits:
            target.execute(f"SET GLOBAL {name} = 0")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("together", [False, True])
def test_a_driver_that_has_been_overtaken_changes_nothing(target: MysqlServer, tmp_path: Path, together: bool) -> None:
    overtaken(MysqlDatabase(tmp_path, target), tmp_path, together)
    assert target.execute("SELECT * FROM public.t") == [(1, "a")]


@pytest.mark.timeout(300)
def test_the_targets_server_crashes_and_a_copy_is_dropped(postgres: PostgresServer, tmp_path: Path) -> None:
    """What is lost with it is applied again; a failing server is no table's fault."""
    postgres.execute(SHOP)
    with MysqlServer(one_of(TARGETS, __name__)) as server:
        copy = begin(postgres.source(), server, tmp_path)
        copy.start()
        settle(copy)
        server.kill()
        postgres.execute("UPDATE shop.item SET price = price + 1; INSERT INTO shop.visit VALUES (9, 'new')")
        copy.until(lambda _: copy.driver.faults(), work=True)
        assert set(copy.driver.faults().values()) == {"Retry"}
        server.start()
        settle(copy)
        for _ in range(2):  # the second one moves them together again
            postgres.execute("UPDATE shop.item SET price = price + 1; INSERT INTO shop.visit VALUES (9, 'new')")
            settle(copy)
        assert server.execute(f"SELECT count(*) FROM {STATE}.tables WHERE member") == [(2,)]
        server.execute("DROP TABLE shop.item")
        postgres.execute("UPDATE shop.item SET price = price + 1 WHERE id = 7")
        there = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'shop' AND table_name = 'item'"
        copy.until(lambda _: server.execute(there) == [(1,)], work=True)
        settle(copy)
        for table in TABLES:
            assert of_mysql(server, f"shop.{table}") == of_postgres(postgres, f"shop.{table}")
        copy.stop()
