"""`public.t` of a PostgreSQL, copied into a real table of Delta or Iceberg."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from demo.compare import READERS
from support.pipeline import Pipeline, lake
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from tailrace import sources
from tailrace.changelog.records.terms import Position
from tailrace.contract.resources import Replicator


class OneTable(Pipeline):
    def __init__(
        self, server: PostgresServer, spark: SparkSession, folder: Path, format: str, options: dict[str, object]
    ) -> None:
        """`options`: those of the table."""
        source = {"type": "postgresql", "host": server.host, "port": server.port, "database": "postgres"}
        document = document_of(
            source=source | {"username": "postgres"},
            tables={"include": ["public.t"]},
            options=[{"match": "*.*"} | options],
            target={"type": format, "location": (folder / "lake").as_uri()},
            storage={"location": (folder / "log").as_uri()},
        )
        replicator = Replicator.model_validate(document)
        reader = sources.open(replicator.spec.source, "test")
        super().__init__(document, reader, folder, lake(replicator, spark))
        self.place = folder / "lake" / "public" / "t"
        self._read = READERS[format]

    def copied(self) -> pa.Table:
        """The table once it has all that is committed, as a reader that is not ours sees it."""
        with self.source.session() as session:
            end = session.log_end()
        self.settle(Position(end))
        assert self.driver.faults() == {}
        return self.now()

    def now(self) -> pa.Table:
        return self._read(self.place)
