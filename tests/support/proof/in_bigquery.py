"""The proof's tables in BigQuery's emulator."""

from pathlib import Path

from support.bigquery import BigQueryService
from support.bigquery_reader import BigQueryCopies
from support.postgres import PostgresServer
from support.proof.harness import Proof

ROWS = 20
"""Rows of each table at the start: the emulator takes long for each batch."""


def replicated(source: PostgresServer, service: BigQueryService, folder: Path, seed: int, chunk_rows: int) -> Proof:
    copies = BigQueryCopies.of(service)
    spec = {"apply": {"freshness": "1s"}, "snapshot": {"chunkRows": chunk_rows, "parallelism": 2}}
    proof = Proof.begin(source, folder, "delta", seed, rows=ROWS, target=copies.target, **spec)
    proof.reader = lambda _, table: copies.read(table)
    return proof
