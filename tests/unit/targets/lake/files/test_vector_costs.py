"""What a table writes over a long run stays within a constant of the unavoidable: the vectors of its dead rows, the
rewriting that ends them, and the joining of small files.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from pyroaring import BitMap64

from bench.vectors import Choose, Simulated, WrittenBytes, run, skewed, uniform
from support.versions import seeds
from tailrace.targets.lake.files.compact import CompactionLimits
from tailrace.targets.lake.files.vector_costs import VectorCosts
from tailrace.targets.lake.files.vectors import encode
from tailrace.targets.lake.model import DataFile

LIMITS = CompactionLimits()


def least(rows: int, size: int, changes: int, batches: int) -> float:
    """Bytes per batch of the best choice, which knows the future: a file of these rows is rewritten after as many
    batches as make the mean of vectors and rewriting the smallest."""
    random, dead, spent, found = Random(3), BitMap64(), size, math.inf
    for number in range(1, batches + 1):
        dead |= BitMap64(random.sample(range(rows), changes))
        spent += len(encode(dead))
        found = min(found, spent / number)
    return found


def test_few_changes_a_batch_cost_little_more_than_the_best_choice_would() -> None:
    """All vectors are written whole: they cost three times as much when a file was rewritten for dead rows alone. And
    this table, as a small file, was rewritten with every eighteenth batch."""
    rows, changes, batches = 400_000, 10, 4_000
    table = Simulated(rows, 20, LIMITS)
    (base,) = table.files.values()
    done = run(table, uniform(rows, changes), batches)
    assert (done.vectors + done.rewritten) / batches < 1.4 * least(rows, base.size, changes, batches)
    assert table.dead_share() < 0.05


def levels(done: WrittenBytes, batches: int) -> float:
    """How often a row is joined at most: each time into a file that is twice as large."""
    return math.log2(LIMITS.small_bytes * batches / done.new)


@pytest.mark.parametrize("choose", [uniform, skewed])
def test_what_is_rewritten_is_bounded_by_what_is_written(choose: Callable[[int, int], Choose]) -> None:
    """Whatever the sizes of rows, table and batches are: a file that is changed all the time is not rewritten for
    nothing, nor is all of a table that is below the size of one file."""
    for seed in seeds(3):
        random = Random(seed)
        rows, size, changes = random.choice([5_000, 50_000, 200_000]), random.choice([20, 100]), random.randint(1, 300)
        table, batches = Simulated(rows, size, LIMITS), 600
        done = run(table, choose(rows, changes), batches, every=random.randint(1, 20))
        allowed = done.new * (levels(done, batches) + 1 / LIMITS.dead_share) + done.vectors / LIMITS.vector_share
        print(f"seed {seed}: {rows} rows of {size} B, {changes} changes; {done.rewritten / allowed:.2f} of the bound")
        assert done.rewritten < allowed + 2 * rows * size
        assert done.files < LIMITS.min_files + levels(done, batches) + 20


def test_a_table_of_one_small_file_is_not_rewritten_with_every_few_batches() -> None:
    """It had cost 20 MB each time: 360 times what the batches themselves were."""
    table = Simulated(100_000, 200, LIMITS)
    done = run(table, uniform(100_000, 10), 500)
    assert done.rewritten < 8 * done.new


def test_costs_are_counted_by_file_and_forgotten_with_it() -> None:
    costs, files = VectorCosts(), [DataFile(name, 10, 100, BitMap64([1]), vector_bytes=7) for name in "ab"]
    for _ in itertools.repeat(None, 2):
        costs.wrote(files, ["a", "gone"])
    assert [costs.of(file) for file in files] == [14, 7]
    costs.wrote([replace(files[0], vector_bytes=9)], ["a"])
    assert costs.of(files[0]) == 23
    costs.keep_only(files[1:])
    assert costs.of(files[0]) == 7
