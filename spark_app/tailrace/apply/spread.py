"""Work the parts of a large batch as Spark tasks.

`apply.engine.build` gets `spread` from the stream when a batch is above its bounds. Each task is one part: the pickled
`Work` goes out, an `Outcome` (marks, names of written files, holes) comes back; rows never pass through the driver.
"""

import pickle
from collections.abc import Iterable, Iterator
from functools import partial

from pyspark import Broadcast
from pyspark.sql import SparkSession

from tailrace.apply.engine import do_part
from tailrace.apply.work import Outcome, Work
from tailrace.targets.lake.index import IndexCache

TASK_CACHE = IndexCache(0)
"""A task meets each file once: an index that is kept would only cost the executor's memory."""


def spread(spark: SparkSession, work: Work) -> Iterable[Outcome]:
    """Every part's outcome, in order of parts. A failed task is tried again by Spark: files that its first attempt
    wrote are in no commit, and clean-up removes them."""
    context = spark.sparkContext
    shared = context.broadcast(pickle.dumps(work))
    try:
        answers = context.parallelize(range(work.parts), work.parts).mapPartitions(partial(_run, shared)).collect()
    finally:
        shared.destroy()
    return [pickle.loads(answer) for answer in answers]


def _run(shared: Broadcast[bytes], parts: Iterator[int]) -> Iterator[bytes]:
    work: Work = pickle.loads(shared.value)
    for part in parts:
        yield pickle.dumps(do_part(work, part, TASK_CACHE))
