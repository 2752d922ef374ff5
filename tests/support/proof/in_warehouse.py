"""The proof's tables in a warehouse's emulator."""

from pathlib import Path

from support.postgres import PostgresServer
from support.proof.harness import Proof
from support.warehouse_reader import Service, copies_of

ROWS = 20
"""Rows of each table at the start: the emulators take long for each batch."""


def replicated(source: PostgresServer, service: Service, folder: Path, seed: int, chunk_rows: int) -> Proof:
    copies = copies_of(service)
    spec = {"apply": {"freshness": "1s"}, "snapshot": {"chunkRows": chunk_rows, "parallelism": 2}}
    proof = Proof.begin(source, folder, "delta", seed, rows=ROWS, target=copies.target, **spec)
    proof.reader = lambda _, table: copies.read(table)
    return proof
