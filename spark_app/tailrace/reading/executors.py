"""The places where chunks are read: on executors, each as a Spark job with one task, and a few of them in the driver.

A small table is read in the driver, because the job costs ten times as much as its rows. While Spark is starting, the
first chunks of others are, too, in a bounded part of the driver's memory (docs/decisions/0148).
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession

from tailrace.errors import TailraceError
from tailrace.reading.task import ChunkFile, ChunkTask, TooMuch, as_sent, on_executor, perform

SMALL_TABLE_BYTES = 1 << 20
"""A table of so many bytes is read in the driver, until it turns out to have more."""
MEANWHILE_BYTES = 64 << 20
"""Bytes in memory of one chunk that is read in the driver while Spark is starting, at most, ..."""
MEANWHILE_SHARE = 8
"""... and no more than an eighth of what the driver's container has beside the JVM."""
MEANWHILE_CHUNKS = 2
"""Such chunks at a time."""


class ChunkExecutors:
    def __init__(
        self,
        spark: Callable[[], SparkSession],
        ready: Callable[[], bool] = lambda: True,
        begin: Callable[[], None] = lambda: None,
        meanwhile_bytes: int = MEANWHILE_BYTES,
    ) -> None:
        """`spark` waits for the session, `begin` starts it without waiting. `ready` returns True if there is nothing
        to wait for. `meanwhile_bytes`: of one chunk that is read meanwhile, see `room_meanwhile`."""
        self._spark, self._ready, self._begin, self._meanwhile_bytes = spark, ready, begin, meanwhile_bytes
        self._meanwhile = threading.BoundedSemaphore(MEANWHILE_CHUNKS)

    def read(self, task: ChunkTask, small: bool = False) -> ChunkFile:
        """Read one chunk. `small`: the table has few bytes, as far as is known, and Spark is not waited for."""
        if small:
            try:
                return perform(task, SMALL_TABLE_BYTES)
            except TooMuch:
                pass
            return self._run(task)
        self._begin()
        return self._read_meanwhile(task) or self._run(task)

    def _read_meanwhile(self, task: ChunkTask) -> ChunkFile | None:
        """None: it is for an executor. A table without a key is, being one chunk however large it is."""
        if task.table.schema.keyless or self._ready() or not self._meanwhile.acquire(blocking=False):
            return None
        try:
            # Of what passes as it is sent, only the keys and what is read ahead are held.
            return as_sent(task, self._meanwhile_bytes) or perform(task, self._meanwhile_bytes)
        except TooMuch:
            return None
        finally:
            self._meanwhile.release()

    def following_rows(self, rows: int, held: int) -> int:
        """The most rows that the next chunk should have to be read in the driver as well, after one of `rows` rows with
        `held` bytes in memory. The next ones may be longer, so half of the room is left."""
        return max(1, int(rows * self._meanwhile_bytes / 2 / held))

    def _run(self, task: ChunkTask) -> ChunkFile:
        """One job with one task, in the pool of the snapshots."""
        asked = time.monotonic()
        context = self._spark().sparkContext
        waited = time.monotonic() - asked
        context.setLocalProperty("spark.scheduler.pool", "snapshot")
        context.setJobDescription(f"chunk {task.ordinal} of {task.table.name}, snapshot {task.snapshot_id}")
        (answer,) = context.parallelize([task], 1).map(on_executor).collect()
        if isinstance(answer, TailraceError):
            raise answer
        assert isinstance(answer, ChunkFile)
        return replace(answer, waited=waited)


def room_meanwhile(beside_jvm: int) -> int:
    """Bytes in memory that one chunk may have in a driver whose container has so many beside the JVM."""
    return min(MEANWHILE_BYTES, beside_jvm // MEANWHILE_SHARE)
