"""Structured Streaming over the journal: each micro-batch lets the applier cut, build and commit per table.

The source is Spark's own in-memory stream; a batch's rows are never computed, because the driver, which tails the
journal anyway, has it folded already (docs/decisions/0060). What Spark does around a micro-batch costs more than most
work inside: one stays open for `OPEN` seconds, and meanwhile applies whatever the driver notifies it of
(docs/decisions/0082). The checkpoint is re-created at every start: a table stores its own progress, so a lost or stale
checkpoint costs nothing.
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
from tailrace.errors import TailraceError, privacy

log = logging.getLogger(__name__)

MEMORY_STREAM = "org.apache.spark.sql.execution.streaming.runtime.MemoryStream"

OPEN = 60.0
"""Seconds that a micro-batch is kept open."""
LOOK = 1.0
"""Seconds between two questions to Spark whether the query lives."""
GAP = 0.1
"""Seconds between two looks of Spark for the next one."""
FIRST_PAUSE, LONGEST_PAUSE, CALM = 0.5, 15.0, 60.0
"""Before a query that ended is started again; a query that ran for `CALM` seconds sets the pause back."""


class ApplyStream:
    """Keeps the query running from a thread of its own; `apply()` is called for every notification, and at the
    beginning of each micro-batch."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        checkpoint: Path,
        apply: Callable[[], None],
        open_seconds: float = OPEN,
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._open_seconds = open_seconds
        self._wanted = False
        self._generation = 0
        """Counts the changes of `_wanted`: a query belongs to one."""
        self._follows = threading.Event()
        self._apply = apply
        self._lock = threading.Lock()
        self._source: Any = None
        """The in-memory stream of the present query."""
        self._notified = RecordNumber(-1)
        self._begun = False
        """A micro-batch has been asked for, and begins or is open: Spark needs no further data."""
        self._news = threading.Event()
        """Wakes the open micro-batch."""
        self._ending = threading.Event()
        self._query: StreamingQuery | None = None
        self._delivers = False
        self._looked = (0.0, False)
        self._thread = threading.Thread(target=self._keep, name="apply-stream", daemon=True)

    def start(self) -> None:
        """Nothing comes before `follow`."""
        self._thread.start()

    def follow(self, wanted: bool) -> None:
        """Have batches come, or no further ones."""
        if wanted == self._wanted:
            return
        with self._lock:
            self._wanted, self._generation = wanted, self._generation + 1
            self._source = None  # nobody would take its data
        self._news.set()
        if wanted:
            self._follows.set()
        else:
            self._follows.clear()
        if self._query is not None:
            self._query.stop()  # another is begun

    def notify(self, number: RecordNumber, *, again: bool = False) -> None:
        """The journal holds records up to `number`; `again`: work is to begin even if a former one knew that."""
        with self._lock:
            if self._source is None or (number <= self._notified and not again):
                return
            self._notified = number
            self._news.set()
            if not self._begun:
                self._ask(number)

    def _ask(self, number: RecordNumber) -> None:
        """Have Spark begin a micro-batch."""
        try:
            self._source.addData(self._jvm.PythonUtils.toSeq([str(number)]))
            self._begun = True
        except (PySparkException, Py4JError, OSError) as error:
            # The main loop names the JVM's death, and applies while no batch comes.
            log.warning("the apply stream could not be notified of record %d (%s)", number, type(error).__name__)
            self._delivers, self._notified = False, RecordNumber(-1)

    @property
    def running(self) -> bool:
        """True if batches come: a query is active long before its first, and a loaded machine may keep it there."""
        query = self._query
        if not self._delivers or query is None:
            return False
        now = time.monotonic()
        if now - self._looked[0] >= LOOK:
            self._looked = now, query.isActive
        return self._looked[1]

    def stop(self) -> None:
        self._ending.set()
        self._follows.set()
        self._news.set()
        if self._query is not None:
            self._query.stop()
        if self._thread.is_alive():
            self._thread.join(30)

    def _keep(self) -> None:
        pause = FIRST_PAUSE
        while self._follows.wait() and not self._ending.is_set():
            begun = time.monotonic()
            with self._lock:
                wanted, generation = self._wanted, self._generation
            self._delivers = False
            if not wanted:
                continue
            try:
                self._query = self._begin()
                if (
                    self._ending.is_set() or self._generation != generation
                ):  # `stop` or `follow` came too early to meet it
                    self._query.stop()
                self._query.awaitTermination()
            except (PySparkException, Py4JError) as error:
                if not self._ending.is_set():
                    log.warning("the apply stream ended, restarting it: %s", privacy.error_text(error))
            except TailraceError:
                return  # Spark did not start, which ends the run: the main loop asks for the session, too
            if self._generation != generation:
                pause = FIRST_PAUSE
                continue
            pause = FIRST_PAUSE if time.monotonic() - begun > CALM else min(pause * 2, LONGEST_PAUSE)
            self._ending.wait(pause)

    def _begin(self) -> StreamingQuery:
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        spark = self._spark()
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", "changes")
        encoder = self._jvm.org.apache.spark.sql.Encoders.STRING()
        source = getattr(self._jvm, MEMORY_STREAM).apply(encoder, spark._jsparkSession)
        with self._lock:
            self._source, self._notified, self._begun = source, RecordNumber(-1), False
            self._looked = (0.0, False)
        return (
            DataFrame(source.toDF(), spark)
            .writeStream.foreachBatch(lambda rows, number: self._batch(source))
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=f"{int(GAP * 1000)} milliseconds")
            .queryName("tailrace-apply")
            .start()
        )

    @property
    def _jvm(self) -> Any:
        return self._spark().sparkContext._jvm

    def _batch(self, source: Any) -> None:
        """Take notifications for a while; the next micro-batch begins as soon as Spark looks."""
        self._delivers = True
        ends = time.monotonic() + self._open_seconds
        while self._is_present(source):
            self._news.clear()
            self._apply()
            if not self._news.wait(max(0.0, ends - time.monotonic())) or time.monotonic() >= ends:
                break
        with self._lock:
            if self._is_present(source):
                self._ask(self._notified)

    def _is_present(self, source: Any) -> bool:
        return self._source is source and not self._ending.is_set()
