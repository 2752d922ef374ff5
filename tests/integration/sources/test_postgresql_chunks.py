"""Key walks, chunk reads and the edge of capture against real servers."""

import json
import pickle
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from support.pg_keys import WALKS as KEYS
from support.pg_source import chunk_of, config_of, table_of, walk
from support.pg_walks import WALKS
from support.postgres import PostgresServer
from support.versions import turns
from tailrace.changelog.keys import keys as keys_of
from tailrace.contract.resources import TablesSpec
from tailrace.databases.postgresql.connect import SETTINGS, Connection, PgConfig, connect
from tailrace.errors import Locked, NoKey, ReadRefused, Retry, SourceRefused, TableGone
from tailrace.sources.api import KeyList, KeyRange
from tailrace.sources.postgresql import chunks
from tailrace.sources.postgresql.catalog import discover, table_by_oid
from tailrace.sources.postgresql.chunks import PgKeys, boundary_statement, edge_passed, read_chunk
from tailrace.sources.postgresql.source import PgReader

ALL = KeyRange(None, None)


def script(connection: Connection, text: str) -> None:
    for statement in text.split(";"):
        connection.execute(statement)


@pytest.fixture(scope="module", params=turns(14, 18))
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with PostgresServer(request.param, {"max_prepared_transactions": 5}) as server:
        yield server


@pytest.fixture
def config(server: PostgresServer) -> PgConfig:
    return config_of(server)


@pytest.fixture
def connection(config: PgConfig) -> Iterator[Connection]:
    with connect(config) as connection:
        script(connection, "DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
        yield connection


@pytest.mark.parametrize("name", list(WALKS))
def test_a_walk_in_chunks_finds_each_row_exactly_once(connection: Connection, config: PgConfig, name: str) -> None:
    script(connection, WALKS[name])
    table = table_of(connection, "public.w")
    whole = chunk_of(config, table, ALL).to_pylist()
    count = connection.execute("SELECT count(*) FROM ONLY public.w").fetchone()
    if not table.partitioned:
        assert count == (len(whole),)
    at_most = PgKeys(connection, table).at_most
    assert at_most(len(whole)) and not (whole and at_most(len(whole) - 1))
    for rows in range(1, 8):
        assert repr(walk(config, connection, table, rows)) == repr(whole), f"{name}, {rows} rows to a chunk"


@pytest.mark.parametrize("name", list(KEYS))
def test_a_key_of_any_type_is_walked_and_listed(connection: Connection, config: PgConfig, name: str) -> None:
    script(connection, KEYS[name])
    table = table_of(connection, "public.w")
    whole = chunk_of(config, table, ALL)
    assert connection.execute("SELECT count(*) FROM public.w").fetchone() == (whole.num_rows,)
    assert walk(config, connection, table, 2) == whole.to_pylist()
    keys = tuple(keys_of([whole[c.name].combine_chunks() for c in table.key_columns]))
    assert PgKeys(connection, table).normal_keys(keys) == keys
    assert chunk_of(config, table, KeyList(keys)) == whole


def test_the_walk_along_a_domain_over_an_enum_uses_the_index(connection: Connection) -> None:
    script(connection, "CREATE TYPE public.mood AS ENUM ('a', 'b'); CREATE DOMAIN public.d AS public.mood")
    script(connection, "CREATE TABLE public.w (m public.d, n int, PRIMARY KEY (m, n))")
    connection.execute("INSERT INTO public.w SELECT 'a', n FROM generate_series(1, 20000) n")
    connection.execute("VACUUM ANALYZE public.w")
    table = table_of(connection, "public.w")
    statement = boundary_statement(table, ("a", "10000"), 100, ("a", "20000")).as_string(connection)
    plan = "\n".join(str(row[0]) for row in connection.execute(f"EXPLAIN {statement}").fetchall())
    assert "Index" in plan and "Sort" not in plan, plan


def test_the_walk_along_a_composite_key_reads_no_more_than_the_chunk(connection: Connection) -> None:
    script(connection, "CREATE TABLE public.w (a int, b int, c int, v text, PRIMARY KEY (a, b, c))")
    connection.execute("INSERT INTO public.w SELECT 1, n / 500, n % 500, 'x' FROM generate_series(0, 49999) n")
    connection.execute("VACUUM ANALYZE public.w")
    table = table_of(connection, "public.w")
    last = PgKeys(connection, table).max_key()
    assert last == ("1", "99", "499")
    for after in (None, ("1", "50", "250")):
        statement = boundary_statement(table, after, 1000, last).as_string(connection)
        plan = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}").fetchone()
        assert plan is not None
        text = json.dumps(plan[0])
        assert "Sort" not in text and "Seq Scan" not in text, text
        scan = plan[0][0]["Plan"]["Plans"][0]
        while "Plans" in scan:
            scan = scan["Plans"][0]
        assert scan["Actual Rows"] <= 2000 and scan.get("Rows Removed by Filter", 0) <= 1000, scan


def test_identifiers_with_quotes_dots_and_capitals_are_taken_literally(
    connection: Connection, config: PgConfig
) -> None:
    script(connection, "DROP SCHEMA IF EXISTS a_b CASCADE; DROP SCHEMA IF EXISTS axb CASCADE; CREATE SCHEMA a_b")
    script(connection, 'CREATE SCHEMA axb; CREATE TABLE a_b."My""T_x.1" ("Ke%y" int PRIMARY KEY, "{}" text)')
    script(
        connection, 'CREATE TABLE axb."My""T_x.1" (id int PRIMARY KEY); INSERT INTO a_b."My""T_x.1" VALUES (1, \'%s\')'
    )
    table = table_of(connection, 'a_b.My"T_x.1')
    assert walk(config, connection, table, 1) == [{"Ke%y": 1, "{}": "%s"}]


def test_keys_that_people_write_become_what_the_log_carries(connection: Connection) -> None:
    script(connection, "CREATE DOMAIN public.code AS bytea; CREATE DOMAIN public.short AS char(4)")
    columns = "n int8, u uuid, b bool, z timestamptz, c public.code, f float8, p char(4), q public.short"
    script(connection, f"CREATE TABLE public.k ({columns}, PRIMARY KEY (n, u, b, z, c, f, p, q))")
    table = table_of(connection, "public.k")
    guid = "B4A9B1F4-6A2E-4D5C-8F0D-3F6A1C2B9E77"
    asked = (" 01", guid, "yes", "2024-02-29 01:02:03.5+02", "\\x616263", "1e3", "x", "y")
    normal = ("1", guid.lower(), "true", "2024-02-28T23:02:03.500000Z", "616263", "1000.0", "x   ", "y   ")
    assert PgKeys(connection, table).normal_keys([asked, normal]) == (normal, normal)
    assert PgKeys(connection, table).normal_keys([]) == ()
    with pytest.raises(ReadRefused, match="invalid input syntax"):
        PgKeys(connection, table).normal_keys([("x", *asked[1:])])


def test_a_list_of_keys_brings_each_row_once_and_skips_what_is_not_there(
    connection: Connection, config: PgConfig
) -> None:
    script(
        connection, "CREATE TABLE public.w (n numeric PRIMARY KEY, v int); INSERT INTO public.w VALUES (1.0, 1), (2, 2)"
    )
    table = table_of(connection, "public.w")
    found = chunk_of(config, table, KeyList((("1.0",), ("1.00",), ("2",), ("3",))))
    assert found.to_pylist() == [{"n": "1.0", "v": 1}, {"n": "2", "v": 2}]


def test_a_row_filter_is_one_condition_and_nothing_else(connection: Connection, config: PgConfig) -> None:
    script(connection, "CREATE TABLE public.w (id int PRIMARY KEY); INSERT INTO public.w VALUES (1), (2), (3)")
    table = table_of(connection, "public.w")
    assert chunk_of(config, table, KeyRange(("1",), None), "id = 1 OR id = 3 -- or")["id"].to_pylist() == [3]
    evil = [
        "true) OR (true",
        "true) UNION ALL (SELECT '9'",
        "true; DROP TABLE public.w",
        "true THEN true END; DROP TABLE public.w; SELECT CASE WHEN true",
        "true /*",
        "nix = 3",
        "",
    ]
    for where in evil:
        with pytest.raises(ReadRefused, match=r"public\.w"):
            chunk_of(config, table, KeyRange(("1",), None), where)
    assert chunk_of(config, table, ALL).num_rows == 3


def test_a_chunk_tells_its_snapshot_and_a_position_behind_everything_it_saw(
    connection: Connection, config: PgConfig
) -> None:
    script(connection, "CREATE TABLE public.w (id int PRIMARY KEY); INSERT INTO public.w VALUES (1)")
    table = table_of(connection, "public.w")
    with psycopg.connect(host=config.host, port=config.port, user="postgres", dbname="postgres") as other:
        other.execute("INSERT INTO public.w VALUES (2)")
        open_xid = other.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
        script(connection, "INSERT INTO public.w VALUES (3)")
        before = connection.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::int8").fetchone()
        read = read_chunk(config, table, ALL, None, lambda batch: None)
        other.rollback()
    assert open_xid is not None and before is not None
    xmin, xmax, xip = read.snapshot.split(":")
    assert read.rows == 2 and int(xmin) == open_xid[0] and str(open_xid[0]) in xip.split(",") and int(xmax) > int(xmin)
    assert read.high >= before[0]
    assert read.columns == ("id",)


def test_a_truncate_cannot_slip_between_the_lock_and_the_read(
    connection: Connection, config: PgConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(connection, "CREATE TABLE public.w (id int PRIMARY KEY); INSERT INTO public.w VALUES (1)")
    table = table_of(connection, "public.w")
    done = threading.Event()

    def truncate() -> None:
        with connect(config) as other:
            other.execute("TRUNCATE public.w")
        done.set()

    thread = threading.Thread(target=truncate)

    def at(name: str) -> None:
        if name == "chunk.before-snapshot":
            thread.start()
            time.sleep(0.3)

    monkeypatch.setattr(chunks, "seam", at)
    assert chunk_of(config, table, ALL).num_rows == 1
    thread.join(10)
    assert done.is_set()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("DROP TABLE public.w", TableGone),
        ("DROP TABLE public.w; CREATE TABLE public.w (id int PRIMARY KEY, v text)", TableGone),
        ("ALTER TABLE public.w RENAME TO x", Retry),
        ("ALTER TABLE public.w RENAME TO x; CREATE TABLE public.w (id int PRIMARY KEY, v text)", Retry),
        ("ALTER TABLE public.w ADD n int DEFAULT 7", Retry),
        ("ALTER TABLE public.w DROP v", Retry),
        ("ALTER TABLE public.w RENAME v TO w", Retry),
        ("ALTER TABLE public.w ALTER v TYPE int USING 1", Retry),
        ("ALTER TABLE public.w DROP v; ALTER TABLE public.w ADD v text", Retry),
        ("ALTER TABLE public.w DROP CONSTRAINT w_pkey; ALTER TABLE public.w ADD PRIMARY KEY (v)", Retry),
        ("DROP SCHEMA public CASCADE", TableGone),
    ],
)
def test_a_table_that_is_no_longer_what_was_planned_is_not_read(
    connection: Connection, config: PgConfig, change: str, error: type[Exception]
) -> None:
    script(connection, "CREATE TABLE public.w (id int PRIMARY KEY, v text); INSERT INTO public.w VALUES (1, 'a')")
    table = table_of(connection, "public.w")
    script(connection, change)
    with pytest.raises(error, match=r"public\.w"):
        chunk_of(config, table, ALL)


def test_a_backend_that_dies_in_the_middle_of_a_chunk_is_an_error_and_not_the_end_of_the_table(
    connection: Connection, config: PgConfig
) -> None:
    script(connection, "CREATE TABLE public.w (id int PRIMARY KEY, v text)")
    connection.execute("INSERT INTO public.w SELECT n, repeat('x', 200) FROM generate_series(1, 300000) n")
    table = table_of(connection, "public.w")
    batches: list[int] = []

    def writer(batch: object) -> None:
        if not batches:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'"
            )
        batches.append(1)

    with pytest.raises(Retry, match=r"public\.w"):
        read_chunk(config.named("victim"), table, ALL, None, writer)
    assert batches


def test_many_small_tables_share_a_connection_until_one_of_them_fails(connection: Connection, config: PgConfig) -> None:
    for name in "abc":
        script(connection, f"CREATE TABLE public.{name} (id int PRIMARY KEY); INSERT INTO public.{name} VALUES (1)")
    a, b, c = (table_of(connection, f"public.{name}") for name in "abc")
    script(connection, "DROP TABLE public.b")
    backends: list[list[int]] = []

    def writer(_: object) -> None:
        found = connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'kept'").fetchall()
        backends.append([pid for (pid,) in found])

    with PgReader(config.named("kept")).kept() as reader:
        for table in (a, c):
            assert reader.read(table, ALL, None, writer).rows == 1
        with pytest.raises(TableGone):
            reader.read(b, ALL, None, writer)
        assert reader.read(a, ALL, None, writer).rows == 1
    assert [len(found) for found in backends] == [1, 1, 1]
    assert backends[0] == backends[1] != backends[2]


def test_looks_at_many_tables_over_one_connection_are_planned_once(connection: Connection) -> None:
    """Planning costs the server several times as much as the look itself, twice for each table of a first start."""
    for name in "abc":
        script(connection, f"CREATE TABLE public.{name} (id int PRIMARY KEY)")
        found = table_by_oid(connection, table_of(connection, f"public.{name}").oid)
        assert found is not None and found.name == f"public.{name}"
    plans = connection.execute("SELECT generic_plans, custom_plans FROM pg_prepared_statements").fetchall()
    assert plans == [(3, 0)]


def test_rows_hidden_by_row_level_security_are_refused_not_left_out(connection: Connection, config: PgConfig) -> None:
    script(connection, "DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA public TO reader")
    script(connection, "CREATE TABLE public.w (id int PRIMARY KEY); INSERT INTO public.w VALUES (1)")
    table = table_of(connection, "public.w")
    reader = PgConfig(config.host, config.port, "postgres", "reader")
    with pytest.raises(ReadRefused, match=r'GRANT SELECT ON "public"\."w"'):
        chunk_of(reader, table, ALL)
    script(connection, "GRANT SELECT ON public.w TO reader; ALTER TABLE public.w ENABLE ROW LEVEL SECURITY")
    with pytest.raises(ReadRefused, match="row-level security"):
        chunk_of(reader, table_of(connection, "public.w"), ALL)
    script(connection, "ALTER ROLE reader BYPASSRLS")
    assert chunk_of(reader, table, ALL).num_rows == 1


def test_the_edge_names_the_transaction_that_must_end_first(connection: Connection, config: PgConfig) -> None:
    script(connection, "CREATE TABLE public.w (id int PRIMARY KEY)")
    other = psycopg.connect(
        host=config.host, port=config.port, user="postgres", dbname="postgres", application_name="old one"
    )
    other.execute("INSERT INTO public.w VALUES (1)")
    edge = connection.execute("SELECT pg_current_xact_id()::text::int8").fetchone()
    assert edge is not None
    waiting = edge_passed(connection, edge[0])
    assert waiting is not None
    assert f"pid {other.info.backend_pid}" in waiting and "old one" in waiting and "idle in transaction" in waiting
    other.execute("PREPARE TRANSACTION 'half done'")
    waiting = edge_passed(connection, edge[0])
    assert waiting is not None and "prepared transaction 'half done'" in waiting
    other.autocommit = True
    other.execute("ROLLBACK PREPARED 'half done'")
    assert edge_passed(connection, edge[0]) is None
    other.close()


def test_another_server_than_the_change_logs_is_refused(config: PgConfig) -> None:
    with pytest.raises(SourceRefused, match=r"system identifier .* belongs to 42"):
        connect(config.bound_to("42", 1))


@pytest.mark.parametrize("replication", [False, True])
def test_the_change_logs_own_server_is_taken_and_the_same_one_on_another_timeline_is_not(
    connection: Connection, config: PgConfig, replication: bool
) -> None:
    row = connection.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
    assert row is not None
    connect(config.bound_to(row[0], 1), replication=replication).close()
    with pytest.raises(Retry, match="timeline 1, the change log belongs to 2"):
        connect(config.bound_to(row[0], 2), replication=replication)


def test_a_table_as_the_catalog_shows_it_travels_to_executors(connection: Connection) -> None:
    script(connection, "CREATE TABLE public.w (id int PRIMARY KEY, v text); CREATE TABLE public.nokey (a int)")
    keyed, keyless = table_of(connection, "public.w"), discover(connection, TablesSpec(include=("public.nokey",)))[0]
    assert pickle.loads(pickle.dumps(keyed)) == keyed
    assert str(pickle.loads(pickle.dumps(keyless)).stop) == str(keyless.stop)
    assert isinstance(keyless.stop, NoKey)


def test_a_large_table_arrives_in_bounded_blocks(connection: Connection, config: PgConfig) -> None:
    script(connection, "CREATE TABLE public.w (id int PRIMARY KEY, v text)")
    connection.execute("INSERT INTO public.w SELECT n, repeat('x', 500) FROM generate_series(1, 60000) n")
    sizes: list[int] = []
    read = read_chunk(config, table_of(connection, "public.w"), ALL, None, lambda batch: sizes.append(batch.nbytes))
    assert read.rows == 60000
    assert len(sizes) > 3 and max(sizes) < 9 << 20


@pytest.mark.parametrize("held", ["PARTITION", "INDEX", "PREPARED"])
def test_a_lock_in_the_way_of_a_read_is_named_with_its_holder(
    server: PostgresServer, connection: Connection, config: PgConfig, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    script(
        connection,
        "CREATE TABLE public.w (id int PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE public.w1 PARTITION OF public.w FOR VALUES FROM (0) TO (9); INSERT INTO public.w VALUES (1)",
    )
    table = table_of(connection, "public.w")
    monkeypatch.setitem(SETTINGS, "lock_timeout", "100ms")
    with connect(config.named("migration")) as holder, connect(config) as asking:
        holder.execute("BEGIN")
        holder.execute("REINDEX INDEX public.w1_pkey" if held == "INDEX" else "LOCK TABLE public.w1")
        who = rf"backend {holder.info.backend_pid} \('migration'\)"
        if held == "PREPARED":
            holder.execute("PREPARE TRANSACTION 'two-phase'")
            who = "prepared transaction 'two-phase'"
        what = "w1_pkey" if held == "INDEX" else "w1"
        expected = rf"^Locked: a lock on public.w: {who} holds AccessExclusiveLock on public.{what}, .* open for \d+ s"
        for read in (lambda: chunk_of(config, table, ALL), lambda: PgKeys(asking, table).max_key()):
            with pytest.raises(Locked, match=expected):
                read()
        holder.execute("ROLLBACK PREPARED 'two-phase'" if held == "PREPARED" else "ROLLBACK")
        assert PgKeys(asking, table).max_key() == ("1",), "the connection is as before"
