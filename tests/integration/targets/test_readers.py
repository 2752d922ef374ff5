"""Programs that are not ours can read a table at any time: during commits, checkpoints, compaction and clean-up."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.iceberg import local
from support.maintenance import DeltaWalk, IcebergWalk, Walk
from support.readers import reading

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
COMMITS = 50
READ_SECONDS = 20.0
"""What was replaced is kept for so long, instead of an hour."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("format", "walk"), [("delta", DeltaWalk), ("iceberg", IcebergWalk)])
def test_readers_meet_no_half_written_and_no_missing_file(
    spark: SparkSession, tmp_path: Path, format: str, walk: type[Walk]
) -> None:
    table = walk(spark, tmp_path, 5)
    table.commit(table.values(range(300)), [])
    with reading(format, local(table.table.location)) as reads:
        for number in range(1, COMMITS + 1):
            table.commit(table.values(table.rng.sample(range(300), 12)), table.some_keys(6))
            if number % 2 == 0:
                table.checkpoint()
            if number % 10 == 0:
                table.compact()
                table.kept = table.kept[-1:]
                table.expire(time.time() - READ_SECONDS, table.needed_chunks())
                table.table.sweep(time.time() - READ_SECONDS, table.needed_chunks(), 0.0)
    print(f"{format}: {COMMITS} commits, reads {reads.done}")
    assert not reads.faults
    assert min(reads.done) > 5
