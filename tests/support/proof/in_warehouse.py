"""The proof's tables in a warehouse's emulator."""

from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.proof.harness import Proof
from support.warehouse_reader import WITH_ARRAYS, block_of, copies_of, service_of

ARRAYS = """
CREATE FUNCTION proof.filled() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.tags := coalesce(NEW.tags, ARRAY['', repeat(md5(random()::text), 90)]); RETURN NEW; END $$;
CREATE TRIGGER filled BEFORE INSERT OR UPDATE ON proof.typed FOR EACH ROW EXECUTE FUNCTION proof.filled();
ALTER TABLE proof.typed ALTER tags SET STORAGE EXTERNAL;
UPDATE proof.typed SET tags = tags;
"""
"""No array is NULL, and some are so long that an update leaves them unchanged."""
ROWS = 20
"""Rows of each table at the start: the emulators take long for each batch."""


def replicated(
    source: PostgresServer, folder: Path, target: str, request: pytest.FixtureRequest, *, seed: int, chunk_rows: int
) -> Proof:
    """`target`: see `support.warehouse_reader`."""
    copies, arrays = copies_of(service_of(target, request), **block_of(target)), target == WITH_ARRAYS
    spec: dict[str, object] = {
        "apply": {"freshness": "1s"},
        "snapshot": {"chunkRows": chunk_rows, "parallelism": 2},
        "options": [{"match": "proof.typed", "as": {"tags": "list"}}] if arrays else [],
    }
    proof = Proof.begin(source, folder, "delta", seed, rows=ROWS, target=copies.target, **spec)
    if arrays:
        source.execute(ARRAYS)
    proof.reader = lambda _, table: copies.read(table)
    return proof
