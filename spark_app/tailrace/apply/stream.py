"""Structured Streaming over the journal: a Python data source whose offset is the record number.

Each micro-batch is a range of records; its end is offered to the applier, which cuts, builds and commits per table. The
checkpoint is made anew at every start: how far a table is stands in the table itself, so a lost or stale checkpoint
costs nothing, and a batch that is replayed finds its records applied.
"""

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.changelog.journal import load_rollup
from tailrace.changelog.paths import record_path
from tailrace.errors import Retry
from tailrace.storage import Storage

log = logging.getLogger(__name__)

FORMAT = "tailrace_journal"
SCHEMA = "record long"
MAX_RECORDS = 500
"""Records of one micro-batch: Spark asks for no limit, so the reader sets its own."""
PASSED_BY_SECONDS = 60.0
"""Without a next record for this long, the reader asks whether retention removed it."""


@dataclass
class Records(InputPartition):
    """The records after `start` up to and with `end`."""

    start: int
    end: int

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class JournalStreamReader(DataSourceStreamReader):
    """Runs in a Python process beside the driver; `first`: the record before the first that is asked for."""

    def __init__(self, storage: Storage, first: int) -> None:
        self._storage = storage
        self._position = first
        self._initial = first
        self._asked = time.monotonic()

    def initialOffset(self) -> dict[str, int]:
        return {"record": self._initial}

    def latestOffset(self) -> dict[str, int]:
        """Spark asks this before `initialOffset` at a first start; no more than `MAX_RECORDS` after the last batch."""
        end = self._position
        while end - self._position < MAX_RECORDS and self._storage.exists(record_path(end + 1)):
            end += 1
        if end > self._position:
            self._asked = time.monotonic()
        elif time.monotonic() - self._asked > PASSED_BY_SECONDS:
            self._asked = time.monotonic()
            end = max(end, load_rollup(self._storage).number)
        return {"record": end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        self._position = end["record"]
        return [Records(start["record"], end["record"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        assert isinstance(partition, Records)
        return iter([(partition.end,)] if partition.end > partition.start else [])

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget: the journal has its own retention."""


def journal_source(storage: Storage, first: int) -> type[DataSource]:
    """The data source of one journal; the class travels with `storage` inside, not with secrets in options."""

    class JournalSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return JournalStreamReader(storage, first)

    return JournalSource


class ApplyStream:
    """The query; `offer(record)` is called for every micro-batch."""

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        checkpoint: Path,
        interval: str,
        offer: Callable[[int], None],
    ) -> None:
        self._spark = spark
        self._storage = storage
        self._checkpoint = checkpoint
        self._interval = interval
        self._offer = offer
        self._query: StreamingQuery | None = None
        self.turned = time.monotonic()
        """When the last batch ended; for the health check."""

    def start(self, first: int) -> None:
        """Begin after record `first`."""
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._spark.dataSource.register(journal_source(self._storage, first))
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "changes")
        self._query = (
            self._spark.readStream.format(FORMAT)
            .load()
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=self._interval)
            .queryName("tailrace-apply")
            .start()
        )

    @property
    def running(self) -> bool:
        return self._query is not None and self._query.isActive

    def check(self) -> None:
        """Raises `Retry` when the query has ended by itself."""
        if self._query is not None and not self._query.isActive:
            fault = self._query.exception()
            self._query = None
            raise Retry(f"the apply stream ended: {str(fault).splitlines()[0] if fault else 'no reason given'}")

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
            self._query = None

    def _batch(self, rows: DataFrame, number: int) -> None:
        ends = [row.record for row in rows.collect()]
        if ends:
            self._offer(max(ends))
        self.turned = time.monotonic()
