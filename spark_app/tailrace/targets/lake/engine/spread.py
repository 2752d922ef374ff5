"""Work the parts of a large batch as Spark tasks.

`engine.build.build` is given `spread` and calls it when a batch is above its bounds. One task per segment or file of
keys divides its rows among the parts, a shuffle brings each part its own, one task per part works them: the pickled
`PartInput` goes out, a `PartResult` (marks, names of written files, holes) comes back; rows never pass through the
driver.
"""

import pickle
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import SparkSession

from tailrace import privacy
from tailrace.targets.lake.engine.build import do_part
from tailrace.targets.lake.engine.divide import Piece, Source, arrived, divide, to_divide
from tailrace.targets.lake.engine.part import PartInput, PartResult
from tailrace.targets.lake.files.index import IndexCache

TASK_CACHE = IndexCache(0)
"""A task meets each file once: an index that is kept would only cost the executor's memory."""

MOST_TASKS = 2000
"""That divide: a snapshot may have more files."""


def spread(spark: SparkSession, work: PartInput) -> Iterable[PartResult]:
    """Every part's result, in order of parts. A failed task is tried again by Spark: files that its first attempt
    wrote are in no commit, and clean-up removes them."""
    context = spark.sparkContext
    shared = context.broadcast(pickle.dumps(work))
    sources = to_divide(work)
    divided = context.parallelize(sources, min(max(1, len(sources)), MOST_TASKS)).mapPartitions(
        partial(_divide, shared)
    )
    pieces = divided.partitionBy(work.parts, _part)
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
        yield pickle.dumps(do_part(work, part, TASK_CACHE, arrived(work, (piece for _, piece in pieces))))
    _give_back()


def _give_back() -> None:
    """Python workers live on between tasks; what Arrow keeps for later would count against the pod's memory."""
    pa.default_memory_pool().release_unused()
