"""The source of all stages: an embedded PostgreSQL 18 and a table with ten columns of the usual types."""

from demo.postgres_server import PostgresServer, Setting
from tailrace.contract.resources import Replicator

COLUMNS = """
    id bigint PRIMARY KEY, customer_id bigint NOT NULL, status text NOT NULL, amount numeric(12, 2) NOT NULL,
    qty int NOT NULL, price float8, paid boolean, created_at timestamptz NOT NULL, day date, note text
"""
ROW = """
    g, g * 7919 % 1000003, (ARRAY['new', 'paid', 'sent', 'done'])[1 + g % 4], g % 100000 / 100.0, g % 50, g * 0.25,
    g % 3 = 0, '2026-01-01T00:00:00Z'::timestamptz + g * interval '1 second', '2026-01-01'::date + (g % 365)::int,
    CASE WHEN g % 5 > 0 THEN 'note ' || md5(g::text) END
"""
"""About 110 bytes of text; a fifth of the notes is null."""


def server() -> PostgresServer:
    settings: dict[str, Setting] = {"shared_buffers": "512MB", "max_wal_size": "8GB", "autovacuum": False}
    return PostgresServer(18, settings)


def create(server: PostgresServer, table: str) -> None:
    server.execute(f"CREATE TABLE {table} ({COLUMNS})")


def insert(server: PostgresServer, table: str, first: int, last: int) -> None:
    """Rows with these ids, in one transaction."""
    server.execute(f"INSERT INTO {table} SELECT {ROW} FROM generate_series({first}::bigint, {last}::bigint) g")


def insert_one_by_one(server: PostgresServer, table: str, first: int, last: int) -> None:
    """Rows with these ids, each in a transaction of its own."""
    loop = f"FOR g IN {first}..{last} LOOP INSERT INTO {table} SELECT {ROW}; COMMIT; END LOOP"
    server.execute(f"DO $$ BEGIN {loop}; END $$")


def update(server: PostgresServer, table: str, first: int, last: int) -> None:
    server.execute(f"UPDATE {table} SET qty = qty + 1, status = 'late' WHERE id BETWEEN {first} AND {last}")


def replicator(server: PostgresServer, folder: str, include: str, **spec: object) -> Replicator:
    """A Replicator over the tables `include` with everything below `folder` (a `file://` URI)."""
    source = {"type": "postgresql", "host": server.host, "port": server.port, "database": "postgres",
              "username": "postgres", "tls": {"mode": "disable"}}  # fmt: skip
    given = {"source": source, "tables": {"include": [include]}, "storage": {"location": f"{folder}/log"},
             "target": {"type": "delta", "location": f"{folder}/lake"}, "apply": {"freshness": "500ms"}}  # fmt: skip
    return Replicator.model_validate({
        "apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": "bench"},
        "spec": given | spec,
    })  # fmt: skip
