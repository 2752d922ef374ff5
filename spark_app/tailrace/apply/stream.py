"""Structured Streaming over the journal: each micro-batch lets the applier cut, build and commit per table.

The source is Spark's own in-memory stream, which the driver, as it tails the journal anyway, notifies of new records; a
batch's rows are never computed, because the driver has the journal folded already (docs/decisions/0060). The checkpoint
is re-created at every start: how far a table is stands in the table itself, so a lost or stale checkpoint costs
nothing.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.changelog.records.terms import RecordNumber
from tailrace.errors import privacy

log = logging.getLogger(__name__)

MEMORY_STREAM = "org.apache.spark.sql.execution.streaming.runtime.MemoryStream"

FIRST_PAUSE, LONGEST_PAUSE, CALM = 0.5, 15.0, 60.0
"""Before a query that ended is started again; a query that ran for `CALM` seconds sets the pause back."""


class ApplyStream:
    """Keeps the query running from a thread of its own; `apply()` is called for every micro-batch."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        checkpoint: Path,
        apply: Callable[[], None],
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._interval: float | None = None
        self._generation = 0
        """Counts the notifications of `follow`: a query belongs to one."""
        self._follows = threading.Event()
        self._apply = apply
        self._lock = threading.Lock()
        self._source: Any = None
        """The in-memory stream of the present query."""
        self._notified = RecordNumber(-1)
        self._ending = threading.Event()
        self._query: StreamingQuery | None = None
        self._delivers = False
        self._thread = threading.Thread(target=self._keep, name="apply-stream", daemon=True)

    def start(self) -> None:
        """Nothing comes before `follow`."""
        self._thread.start()

    def follow(self, interval: float | None) -> None:
        """Seconds between two batches from now on; None: no further batches come."""
        if interval == self._interval:
            return
        with self._lock:
            self._interval, self._generation = interval, self._generation + 1
            self._source = None  # nobody would take its data
        if interval is None:
            self._follows.clear()
        else:
            self._follows.set()
        if self._query is not None:
            self._query.stop()  # another is begun

    def notify(self, number: RecordNumber, *, again: bool = False) -> None:
        """The journal holds records up to `number`; `again`: a batch is wanted even if a former one knew that."""
        with self._lock:
            if self._source is None or (number <= self._notified and not again):
                return
            try:
                self._source.addData(self._jvm.PythonUtils.toSeq([str(number)]))
            except (PySparkException, Py4JError, OSError) as error:
                # The main loop names the JVM's death, and applies while no batch comes.
                log.warning("the apply stream could not be notified of record %d (%s)", number, type(error).__name__)
                self._delivers = False
                return
            self._notified = number

    @property
    def running(self) -> bool:
        """True if batches come: a query is active long before its first, and a loaded machine may keep it there."""
        query = self._query
        return self._delivers and query is not None and query.isActive

    def stop(self) -> None:
        self._ending.set()
        self._follows.set()
        if self._query is not None:
            self._query.stop()
        if self._thread.is_alive():
            self._thread.join(30)

    def _keep(self) -> None:
        pause = FIRST_PAUSE
        while self._follows.wait() and not self._ending.is_set():
            begun = time.monotonic()
            with self._lock:
                interval, generation = self._interval, self._generation
            self._delivers = False
            if interval is None:
                continue
            try:
                self._query = self._begin(interval)
                if (
                    self._ending.is_set() or self._generation != generation
                ):  # `stop` or `follow` came too early to meet it
                    self._query.stop()
                self._query.awaitTermination()
            except (PySparkException, Py4JError) as error:
                if not self._ending.is_set():
                    log.warning("the apply stream ended, restarting it: %s", privacy.error_text(error))
            if self._generation != generation:
                pause = FIRST_PAUSE
                continue
            pause = FIRST_PAUSE if time.monotonic() - begun > CALM else min(pause * 2, LONGEST_PAUSE)
            self._ending.wait(pause)

    def _begin(self, interval: float) -> StreamingQuery:
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        spark = self._spark()
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "changes")
        encoder = self._jvm.org.apache.spark.sql.Encoders.STRING()
        source = getattr(self._jvm, MEMORY_STREAM).apply(encoder, spark._jsparkSession)
        with self._lock:
            self._source, self._notified = source, RecordNumber(-1)
        return (
            DataFrame(source.toDF(), spark)
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=f"{int(interval * 1000)} milliseconds")
            .queryName("tailrace-apply")
            .start()
        )

    @property
    def _jvm(self) -> Any:
        return self._spark().sparkContext._jvm

    def _batch(self, rows: DataFrame, number: int) -> None:
        self._delivers = True
        self._apply()
