"""Preflight on real servers: each missing setting or right is named with the statement that mends it."""

from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from support.pg_source import config_of
from support.postgres import PostgresServer
from support.versions import turns
from tailrace.contract.resources import SourceSpec, TableOptions, TablesSpec
from tailrace.databases.postgresql.connect import Connection, PgConfig, connect
from tailrace.errors import AuthenticationFailed, Retry, SourceRefused
from tailrace.sources.findings import TableSize, refuse
from tailrace.sources.postgresql.catalog import discover
from tailrace.sources.postgresql.facts import Facts, observe
from tailrace.sources.postgresql.preflight import check
from tailrace.sources.postgresql.sizes import sizes
from tailrace.sources.postgresql.support import describe

SCRAM = ("host all postgres 127.0.0.1/32 trust", "host all all 127.0.0.1/32 scram-sha-256")


def facts_of(connection: Connection, server: PostgresServer, include: str = "public.*", **names: str) -> Facts:
    plain = {"type": "postgresql", "host": server.host, "port": server.port, "database": "postgres", "username": "x"}
    manifest = SourceSpec.model_validate({**plain, "postgresql": names})
    tables = discover(connection, TablesSpec(include=(include,)))
    return observe(connection, manifest, ("tailrace_shop", "tailrace_shop"), tables)


def failures(facts: Facts) -> dict[tuple[str, str | None], str]:
    return {(f.name, f.table): f.fix for f in check(facts) if f.level == "fail"}


def summary(facts: Facts) -> str:
    (found,) = [f.message for f in check(facts) if f.name == "tables"]
    return found


def statement_of(fix: str) -> bytes:
    return fix.split("`")[1].encode()


@pytest.mark.parametrize("major", turns(14, 18))
def test_following_every_fix_makes_a_poor_role_fit_and_nothing_is_touched_before(major: int) -> None:
    with PostgresServer(major) as server, connect(config_of(server)) as admin:
        admin.execute("CREATE ROLE poor LOGIN")
        admin.execute('CREATE SCHEMA "S x"')
        admin.execute('CREATE TABLE "S x"."T" (id int PRIMARY KEY)')
        admin.execute('CREATE TABLE "S x".nokey (id int)')
        admin.execute('ALTER TABLE "S x"."T" ENABLE ROW LEVEL SECURITY')
        with connect(config_of(server, "poor")) as poor:
            fix = failures(facts_of(poor, server, "S x.*"))["published", "S x.T"]
            assert "source.postgresql.publication" in fix and "GRANT" not in fix, "the owner is a superuser"
        admin.execute('CREATE ROLE "shop owner"')
        for table in ("T", "nokey"):
            admin.execute(f'ALTER TABLE "S x"."{table}" OWNER TO "shop owner"'.encode())
        with connect(config_of(server, "poor")) as poor:
            facts = facts_of(poor, server, "S x.*")
            found = failures(facts)
            assert set(found) == {
                ("replication", None),
                ("publication", None),
                ("NoKey", "S x.nokey"),
                ("published", "S x.T"),
                ("published", "S x.nokey"),
                *((name, table) for name in ("usage", "select") for table in ("S x.T", "S x.nokey")),
                ("row_security", "S x.T"),
            }
            with pytest.raises(SourceRefused, match="lacks the REPLICATION attribute"):
                refuse(check(facts))
            assert summary(facts) == "0 of 2 tables can be captured", "one has a key, and none of the rights"
            assert found["published", "S x.T"].startswith('Run `GRANT "shop owner" TO "poor"`; or ')
            for (name, _), fix in found.items():
                if name != "NoKey":
                    admin.execute(statement_of(fix))
            admin.execute('ALTER TABLE "S x".nokey ADD PRIMARY KEY (id)')
            again = facts_of(poor, server, "S x.*")
            assert failures(again) == {} and summary(again) == "2 of 2 tables can be captured"
            refuse(check(again))
            assert again.slot is None and again.publication is None


def test_a_publication_that_is_given_must_publish_everything_of_every_table(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as connection:
        connection.execute("CREATE TABLE public.a (id int PRIMARY KEY)")
        connection.execute("CREATE TABLE public.b (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE public.b1 PARTITION OF public.b FOR VALUES FROM (0) TO (9)")
        given = {"publication": "mine"}
        missing = failures(facts_of(connection, postgres, **given))
        assert "publish_via_partition_root" in missing["publication", None]
        connection.execute("CREATE PUBLICATION mine FOR TABLE public.a WITH (publish = 'insert')")
        for _ in range(5):
            found = failures(facts_of(connection, postgres, **given))
            if not found:
                break
            for fix in found.values():
                connection.execute(statement_of(fix))
        assert failures(facts_of(connection, postgres, **given)) == {}
        row = connection.execute("SELECT pubviaroot, pubtruncate FROM pg_publication").fetchone()
        assert row == (True, True)


@pytest.mark.postgres(18)
def test_a_filter_or_a_list_of_columns_is_refused_unless_it_holds_all_that_is_copied(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as connection:
        for table in ("filtered", "lacking", "covered"):
            connection.execute(f"CREATE TABLE public.{table} (id int PRIMARY KEY, v text)".encode())
        connection.execute(
            "CREATE PUBLICATION mine FOR TABLE public.filtered WHERE (id > 1), public.lacking (id),"
            " public.covered (id, v)"
        )
        found = failures(facts_of(connection, postgres, publication="mine"))
        assert set(found) == {("published", "public.filtered"), ("published", "public.lacking")}
        for fix in found.values():
            connection.execute(statement_of(fix))
        assert failures(facts_of(connection, postgres, publication="mine")) == {}


@pytest.mark.postgres(18)
def test_partitions_whose_changes_lack_the_key_or_the_log_are_named(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as connection:
        for table in ("index", "full"):
            made = f"CREATE TABLE public.{table} (id int PRIMARY KEY, a int NOT NULL) PARTITION BY RANGE (id)"
            connection.execute(made.encode())
            connection.execute(f"CREATE TABLE public.{table}_1 PARTITION OF public.{table} DEFAULT".encode())
        connection.execute("CREATE UNIQUE INDEX i ON public.index_1 (a)")
        connection.execute("ALTER TABLE public.index_1 REPLICA IDENTITY USING INDEX i")
        connection.execute("ALTER TABLE public.full_1 REPLICA IDENTITY FULL")
        found = failures(facts_of(connection, postgres))
        assert set(found) == {("NoKey", "public.index")}
        assert "ALTER TABLE index_1 REPLICA IDENTITY" in found["NoKey", "public.index"].replace("public.", "")


@pytest.mark.postgres(
    18,
    wal_level="replica",
    max_slot_wal_keep_size="100MB",
    idle_replication_slot_timeout="60s",
    synchronous_standby_names="*",
)
def test_settings_that_capture_needs_are_looked_at(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as connection:
        connection.execute("SET synchronous_commit = local")
        connection.execute("CREATE TABLE public.a (id int PRIMARY KEY)")
        found = {f.name: f for f in check(facts_of(connection, postgres, slot="nix"))}
    assert found["wal_level"].level == "fail" and "wal_level = 'logical'" in found["wal_level"].fix
    assert found["slot"].level == "fail" and "pg_create_logical_replication_slot('nix'" in found["slot"].fix
    assert found["max_slot_wal_keep_size"].level == "warn" and "100 MB" in found["max_slot_wal_keep_size"].message
    assert found["idle_replication_slot_timeout"].level == "warn"
    assert found["synchronous_standby_names"].level == "warn" and "'*'" in found["synchronous_standby_names"].message
    assert found["version"].level == "ok" and found["primary"].level == "ok"


def test_a_standby_a_lost_slot_and_an_old_server_are_refused(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as connection:
        connection.execute("CREATE TABLE public.a (id int PRIMARY KEY)")
        connection.execute("SELECT pg_create_logical_replication_slot('tailrace_shop', 'pgoutput')")
        facts = facts_of(connection, postgres)
    assert facts.slot is not None and failures(facts) == {}
    worse = replace(facts, in_recovery=True, version=130005, slot=replace(facts.slot, wal_status="lost"))
    assert {name for name, _ in failures(worse)} == {"primary", "version", "slot_log"}


def test_each_column_is_judged(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as connection:
        connection.execute(
            "CREATE TABLE public.a (id int PRIMARY KEY, at timestamptz, n numeric(9,2), tags text[],"
            " twice int GENERATED ALWAYS AS (id * 2) STORED)"
        )
        (table,) = discover(connection, TablesSpec(include=("public.a",)))
        (as_text,) = discover(
            connection, TablesSpec(include=("public.a",)), [TableOptions(match="*.a", as_text=("at",))]
        )
        (some,) = discover(
            connection,
            TablesSpec(include=("public.a",)),
            [TableOptions(match="*.a", columns=("tags",), on_unsupported="Fail")],
        )
    described = describe(table, TableSize(), checks_text=True)
    found = {c.column: (c.support, c.suggestion) for c in described.columns}
    assert {name: support for name, (support, _) in found.items()} == {
        "id": "YES",
        "at": "PARTIAL",
        "n": "PARTIAL",
        "tags": "PARTIAL",
        "twice": "NO",
    }
    assert found["at"][1] == "" and "become NULL" in next(c for c in described.columns if c.column == "at").reason
    narrow = describe(some, TableSize(), checks_text=False)
    assert {c.column: c.support for c in narrow.columns} == {
        "id": "YES",
        "at": "NO",
        "n": "NO",
        "tags": "PARTIAL",
        "twice": "NO",
    }
    assert "SQL_ASCII" in narrow.columns[1].reason and "options[].onUnsupported" in narrow.columns[1].suggestion
    assert [c.type for c in as_text.schema.columns] == ["int32", "string", "decimal(9,2)", "string"]
    assert [(c.name, c.key) for c in some.schema.columns] == [("id", 0), ("tags", None)]


def test_a_rotated_password_is_taken_at_the_next_connect_and_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("first-secret\n")
    with PostgresServer(18, hba=SCRAM) as server, connect(config_of(server)) as admin:
        admin.execute("CREATE ROLE reader LOGIN PASSWORD 'first-secret'")
        source = SourceSpec(
            type="postgresql",
            host=server.host,
            port=server.port,
            database="postgres",
            username="reader",
            password_file=str(secret),
        )
        config = PgConfig.of(source)
        connect(config).close()
        admin.execute("ALTER ROLE reader PASSWORD 'second-secret'")
        with pytest.raises(AuthenticationFailed, match="reader") as caught:
            connect(config)
        assert "secret" not in str(caught.value).replace("second-secret", "SHOWN") and "first-secret" not in repr(
            config
        )
        secret.write_text("second-secret")
        connect(config).close()
        with pytest.raises(AuthenticationFailed):
            connect(replace(config, password_file=None))
        with pytest.raises(AuthenticationFailed, match="cannot be read"):
            connect(replace(config, password_file=str(tmp_path / "nix")))


def test_what_cannot_be_connected_to_is_named_by_its_kind(postgres: PostgresServer) -> None:
    config = config_of(postgres)
    with pytest.raises(SourceRefused, match="nix"):
        connect(replace(config, database="nix"))
    with pytest.raises(AuthenticationFailed, match="nobody"):
        connect(replace(config, username="nobody"))
    with pytest.raises(SourceRefused, match="SSL"):
        connect(replace(config, tls_mode="require"))
    with connect(config, replication=True) as walsender:
        row = walsender.execute("IDENTIFY_SYSTEM").fetchone()
        assert row is not None and row[3] == "postgres"
        assert walsender.execute("SHOW wal_sender_timeout").fetchone() == ("30s",)
    postgres.stop()
    with pytest.raises(Retry, match="cannot connect") as away:
        connect(config)
    assert away.value.message.endswith("failed: Connection refused")
    assert str(away.value).count("?") == 0, "a question of the client's, joined without punctuation"


def test_a_role_without_the_replication_attribute_is_refused_by_the_log_connection(postgres: PostgresServer) -> None:
    with connect(config_of(postgres)) as admin:
        admin.execute("CREATE ROLE plain LOGIN")
    with pytest.raises(SourceRefused, match=r"WAL sender|replication"):
        connect(config_of(postgres, "plain"), replication=True)
    with psycopg.connect(host=postgres.host, port=postgres.port, user="plain", dbname="postgres") as plain:
        assert plain.execute("SELECT 1").fetchone() == (1,)


def test_sizes_are_of_all_partitions_and_come_without_a_lock_that_others_hold() -> None:
    with PostgresServer(18, {"autovacuum": "off"}) as server, connect(config_of(server)) as connection:
        connection.execute("CREATE TABLE public.empty (id int PRIMARY KEY, v text)")
        connection.execute("CREATE TABLE public.fresh AS SELECT g AS id FROM generate_series(1, 1000) g")
        connection.execute("CREATE TABLE public.parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
        for low, high in ((0, 1000), (1000, 2000)):
            bounds = f"FOR VALUES FROM ({low}) TO ({high})"
            connection.execute(f"CREATE TABLE public.p{low} PARTITION OF public.parts {bounds}".encode())
        connection.execute("INSERT INTO public.parts SELECT generate_series(0, 1999)")
        connection.execute("ANALYZE public.parts")
        tables = discover(connection, TablesSpec(include=("public.*",)))
        found = sizes(connection, tables)
        empty, fresh, parts = (found[t.oid] for t in tables)
        assert empty.rows == 0 and empty.bytes == 8192, "the index of its TOAST table"
        assert fresh.rows is None and fresh.bytes is not None and fresh.bytes > 0
        assert parts.rows == 2000 and parts.bytes is not None and parts.bytes >= 65536
        with connect(config_of(server)) as other, other.transaction():
            other.execute("LOCK TABLE public.fresh")
            assert [sizes(connection, tables)[t.oid].bytes for t in tables] == [None, None, None]


@pytest.mark.postgres(18)
def test_a_table_that_cannot_be_updated_once_it_is_published_is_named_before(postgres: PostgresServer) -> None:
    """A publication that brings stored generated columns makes a difference; none helps with virtual ones."""
    for name, kind in {"stored": "STORED", "virtual": "VIRTUAL"}.items():
        postgres.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id) {kind})")
        postgres.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    with connect(config_of(postgres)) as admin:
        found = failures(facts_of(admin, postgres))
        assert set(found) == {("published", "public.stored"), ("published", "public.virtual")}
        admin.execute("CREATE PUBLICATION p FOR ALL TABLES WITH (publish_generated_columns = stored)")
        found = failures(facts_of(admin, postgres, publication="p", slot="none"))
        assert ("published", "public.virtual") in found and ("published", "public.stored") not in found
        admin.execute("DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE public.stored (id, g)")
        found = failures(facts_of(admin, postgres, "public.stored", publication="p", slot="none"))
        assert ("published", "public.stored") not in found
        admin.execute("DROP PUBLICATION p; CREATE PUBLICATION p FOR TABLE public.stored")
        found = failures(facts_of(admin, postgres, "public.stored", publication="p", slot="none"))
        postgres.execute(statement_of(found["published", "public.stored"]).decode())
        assert ("published", "public.stored") not in failures(facts_of(admin, postgres, "public.stored"))
