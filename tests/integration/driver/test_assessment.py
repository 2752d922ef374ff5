"""What the first driver says of a real source's tables, before anything is made there."""

from pathlib import Path

from support.dropping import manifest
from support.pg_source import config_of
from support.postgres import PostgresServer
from tailrace.contract.manifest import load
from tailrace.databases.postgresql.connect import connect
from tailrace.driver.asking import assessment

TABLES = """
CREATE SCHEMA assessed;
CREATE TABLE assessed.exact (id int PRIMARY KEY, name text);
CREATE TABLE assessed.partly (id int PRIMARY KEY, price numeric(9,2));
CREATE TABLE assessed.keyless (name text);
INSERT INTO assessed.exact SELECT g, 'x' FROM generate_series(1, 5000) g;
ANALYZE assessed.exact;
"""


def test_tables_are_counted_and_a_refused_one_is_named_with_its_fix(postgres: PostgresServer, tmp_path: Path) -> None:
    path = manifest(tmp_path, {"host": postgres.host, "port": postgres.port})
    path.write_text(path.read_text().replace("public.*", "assessed.*"))
    with connect(config_of(postgres)) as admin:
        admin.execute(TABLES.encode())
        found = assessment.before_first_start(load(path).replicator(), None, 1.0)
        slots = admin.execute("SELECT count(*) FROM pg_replication_slots").fetchone()
    assert found is not None
    assert (found.tables, found.copied, found.inexact_columns, found.rows) == (3, 2, 1, 5000)
    (refused,) = found.refused
    assert refused.startswith("assessed.keyless: ") and "no primary key" in refused and ". Fix: " in refused
    assert slots == (0,)
