"""Structured Streaming over the journal: each micro-batch lets the applier cut, build and commit per table.

A batch's rows are never computed: the driver has the journal folded already, and a Python task per batch costs 0.35 s
(docs/decisions/0002). The checkpoint is made anew at every start: how far a table is stands in the table itself, so a
lost or stale checkpoint costs nothing, and a batch that is replayed finds its records applied.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.apply.journal_source import FORMAT, journal_source

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE, CALM = 0.5, 15.0, 60.0
"""Before a query that ended is started again; a query that ran for `CALM` seconds sets the pause back."""


class ApplyStream:
    """Keeps the query running from a thread of its own; `apply()` is called for every micro-batch."""

    def __init__(
        self,
        spark: SparkSession,
        head: Path,
        checkpoint: Path,
        *,
        interval: str,
        position: Callable[[], int],
        apply: Callable[[], None],
    ) -> None:
        """`head`: the journal's `HeadFile`; `position`: the last record offered otherwise, where a new query begins."""
        self._spark = spark
        self._head = head
        self._checkpoint = checkpoint
        self._interval = interval
        self._position = position
        self._apply = apply
        self._ending = threading.Event()
        self._query: StreamingQuery | None = None
        self._delivers = False
        self._thread = threading.Thread(target=self._keep, name="apply-stream", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether batches come: a query is active long before its first, and a loaded machine may keep it there."""
        query = self._query
        return self._delivers and query is not None and query.isActive

    def stop(self) -> None:
        self._ending.set()
        if self._query is not None:
            self._query.stop()
        if self._thread.is_alive():  # it is never started while the target is suspended
            self._thread.join(30)

    def _keep(self) -> None:
        pause = FIRST_PAUSE
        while not self._ending.is_set():
            begun = time.monotonic()
            self._delivers = False
            try:
                self._query = self._begin()
                if self._ending.is_set():  # `stop` came too early to meet it
                    self._query.stop()
                self._query.awaitTermination()
            except (PySparkException, Py4JError) as error:
                if not self._ending.is_set():
                    log.warning("the apply stream ended and starts again: %s", str(error).splitlines()[0])
            pause = FIRST_PAUSE if time.monotonic() - begun > CALM else min(pause * 2, LONGEST_PAUSE)
            self._ending.wait(pause)

    def _begin(self) -> StreamingQuery:
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        self._spark.dataSource.register(journal_source(self._head, self._position()))
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
        self._delivers = True
        self._apply()
