"""Structured Streaming over the journal: a Python data source whose offset is the record number.

Each micro-batch is a range of records; its end is offered to the applier, which cuts, builds and commits per table. The
checkpoint is made anew at every start: how far a table is stands in the table itself, so a lost or stale checkpoint
costs nothing, and a batch that is replayed finds its records applied.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.changelog.journal import load_rollup
from tailrace.changelog.paths import record_path
from tailrace.storage import Storage

log = logging.getLogger(__name__)

FORMAT = "tailrace_journal"
SCHEMA = "record long"
MAX_RECORDS = 500
"""Records of one micro-batch: Spark asks for no limit, so the reader sets its own."""
FIRST_PAUSE, LONGEST_PAUSE, CALM = 0.5, 15.0, 60.0
"""Before a query that ended is started again; a query that ran for `CALM` seconds sets the pause back."""
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
    """Keeps the query running from a thread of its own; `offer(record)` is called for every micro-batch."""

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        checkpoint: Path,
        *,
        interval: str,
        position: Callable[[], int],
        offer: Callable[[int], None],
    ) -> None:
        """`position`: the last record that was offered otherwise, where a new query begins."""
        self._spark = spark
        self._storage = storage
        self._checkpoint = checkpoint
        self._interval = interval
        self._position = position
        self._offer = offer
        self._ending = threading.Event()
        self._query: StreamingQuery | None = None
        self._thread = threading.Thread(target=self._keep, name="apply-stream", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        query = self._query
        return query is not None and query.isActive

    def stop(self) -> None:
        self._ending.set()
        if self._query is not None:
            self._query.stop()
        self._thread.join(30)

    def _keep(self) -> None:
        pause = FIRST_PAUSE
        while not self._ending.is_set():
            begun = time.monotonic()
            try:
                self._query = self._begin()
                self._query.awaitTermination()
            except (PySparkException, Py4JError) as error:
                if not self._ending.is_set():
                    log.warning("the apply stream ended and starts again: %s", str(error).splitlines()[0])
            pause = FIRST_PAUSE if time.monotonic() - begun > CALM else min(pause * 2, LONGEST_PAUSE)
            self._ending.wait(pause)

    def _begin(self) -> StreamingQuery:
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._spark.dataSource.register(journal_source(self._storage, self._position()))
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", "changes")
        return (
            self._spark.readStream.format(FORMAT)
            .load()
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=self._interval)
            .queryName("tailrace-apply")
            .start()
        )

    def _batch(self, rows: DataFrame, number: int) -> None:
        ends = [row.record for row in rows.collect()]
        if ends:
            self._offer(max(ends))
