"""Work the parts of a large batch as Spark tasks.

`engine.build.build` is given `spread` and calls it when a batch is above its bounds. One task per segment or file of
keys divides its rows among the parts, a shuffle brings each part its own, one task per part works them: the pickled
`PartInput` goes out, a `PartResult` (marks, names of written files, holes) comes back; rows never pass through the
driver. Where no executor comes for them in time, the batch is worked in the driver.
"""

import logging
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import Broadcast, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.errors import TailraceError, privacy
from tailrace.fold.comparison import Compared
from tailrace.targets.demand import DEMAND, PATIENCE, Demand
from tailrace.targets.lake.engine.build import do_part
from tailrace.targets.lake.engine.compare import compare
from tailrace.targets.lake.engine.divide import Piece, Source, divide, shuffled_keys, to_divide
from tailrace.targets.lake.engine.part import PartInput, PartResult
from tailrace.targets.lake.files.index_cache import IndexCache

log = logging.getLogger(__name__)
TASK_CACHE = IndexCache(0)
"""A task meets each file once: an index that is kept would only cost the executor's memory."""

MOST_TASKS = 2000
"""That divide: a snapshot may have more files."""


def spread(spark: SparkSession, work: PartInput, demand: Demand = DEMAND) -> Iterable[PartResult] | None:
    """Every part's result, in order of parts; None: there is no executor, and none came. A task that failed is tried
    again by Spark, those of a cancelled job in the driver: what they wrote is in no commit, and clean-up removes it."""
    context = spark.sparkContext
    if context._jsc.isLocal():
        return _job(context, work)
    if demand.missing and not _executors(context):
        return None
    tag = f"tailrace-{uuid.uuid4().hex}"
    with demand.patiently(partial(_executors, context), partial(context.cancelJobsWithTag, tag)) as attempt:
        context.addJobTag(tag)
        try:
            results = _job(context, work)
        except (Py4JError, PySparkException):
            if not attempt.given_up:
                raise
        else:
            demand.came()
            return results
        finally:
            context.removeJobTag(tag)
    parts = work.fold.parts
    log.warning("no executor came within %.0f s, the driver applies a batch of %d parts itself", PATIENCE, parts)
    return None


FEW_ROWS = 20_000
"""Rows of chunks that are compared in the driver: a job costs more."""


def compare_rows(spark: Callable[[], SparkSession], work: PartInput) -> Compared:
    """The comparison, as one task in the pool of the snapshots; in the driver, if there is little or no executor."""
    chunks = [*work.slice.chunks, *(chunk for finish in work.slice.finished for chunk in finish.chunks)]
    if sum(chunk.rows for chunk in chunks) <= FEW_ROWS and sum(file.rows for file in work.files) <= 10 * FEW_ROWS:
        return compare(work)
    context = spark().sparkContext
    if not context._jsc.isLocal() and not _executors(context):
        return compare(work)
    context.setLocalProperty("spark.scheduler.pool", "snapshot")
    (answer,) = context.parallelize([pickle.dumps(work)], 1).map(_compare).collect()
    found: Compared | TailraceError = pickle.loads(answer)
    if isinstance(found, TailraceError):
        raise found
    return found


def _compare(packed: bytes) -> bytes:
    """Errors come back as values, so that they keep their names through Spark."""
    work: PartInput = pickle.loads(packed)
    try:
        with privacy.withheld():
            return pickle.dumps(compare(work))
    except TailraceError as error:
        return pickle.dumps(error)
    finally:
        del work
        _give_back()


def _executors(context: SparkContext) -> bool:
    """True if one runs; the driver's own entry stands beside those of executors. A JVM that is gone ends the job,
    too."""
    try:
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) > 1
    except (Py4JError, OSError):
        return True


def _job(context: SparkContext, work: PartInput) -> list[PartResult]:
    shared = context.broadcast(pickle.dumps(work))
    sources = to_divide(work)
    divided = context.parallelize(sources, min(max(1, len(sources)), MOST_TASKS)).mapPartitions(
        partial(_divide, shared)
    )
    pieces = divided.partitionBy(work.fold.parts, _part)
    try:
        answers = pieces.mapPartitionsWithIndex(partial(_run, shared)).collect()
    finally:
        # Spark would keep the shuffle's files until the JVM happens to collect its garbage.
        pieces._jrdd.rdd().cleanShuffleDependencies(False)
        shared.destroy()
    return [pickle.loads(answer) for answer in answers]


def _part(number: int) -> int:
    return number


def _divide(shared: Broadcast[bytes], sources: Iterator[Source]) -> Iterator[tuple[int, Piece]]:
    with privacy.withheld():
        work: PartInput = pickle.loads(shared.value)
        yield from divide(work, sources)
    _give_back()


def _run(shared: Broadcast[bytes], part: int, pieces: Iterator[tuple[int, Piece]]) -> Iterator[bytes]:
    with privacy.withheld():
        work: PartInput = pickle.loads(shared.value)
        yield pickle.dumps(do_part(work, part, TASK_CACHE, shuffled_keys(work, (piece for _, piece in pieces))))
    _give_back()


def _give_back() -> None:
    """Python workers live on between tasks; what Arrow keeps for later would count against the pod's memory."""
    pa.default_memory_pool().release_unused()
