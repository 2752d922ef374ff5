"""Simulation of what a lake table writes over a long run: new rows, deletion vectors, rewritten and joined files.

    PYTHONPATH=tools:spark_app python -m bench.vectors [--file-mb 1,8,32,128] [--row-bytes 20,200,1000]
        [--changes 10,100,1000] [--vector-shares 0.5,1,2,4,inf] [--largest-shares 1] [--batches 20000] [--every 6]

No file is written: `Simulated` counts the bytes that a table's commits would have, with the product's own choice of
what to compact and its own encoding of vectors, and takes a Parquet file for its rows times their size. The table is
one file at first. Prints the bytes per batch for each kind of table: for each share of a file's bytes that its vectors
may cost (`CompactionLimits.vector_share`), and each that the largest file to be joined may have (`largest_share`).
"""

import argparse
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from tailrace.targets.lake.files.compact import CompactionLimits, pick
from tailrace.targets.lake.files.vector_costs import VectorCosts
from tailrace.targets.lake.files.vectors import encode
from tailrace.targets.lake.files.write import FILE_BYTES
from tailrace.targets.lake.model import DataFile

Keys = npt.NDArray[np.int64]
Choose = Callable[[np.random.Generator], Keys]
FILE_OVERHEAD = 1_000
"""Bytes of a Parquet file besides its rows."""
FEWEST = 500
"""Batches of a run."""


@dataclass
class WrittenBytes:
    new: int = 0
    vectors: int = 0
    rewritten: int = 0
    """Files that compaction wrote, for dead rows or to join small ones."""
    compactions: int = 0
    files: int = 0
    """The most that were live at a look."""


class Simulated:
    """A table whose rows are numbered keys."""

    def __init__(self, keys: int, row_bytes: int, limits: CompactionLimits) -> None:
        self.row_bytes, self.limits = row_bytes, limits
        self.written, self.costs = WrittenBytes(), VectorCosts()
        self._file, self._row = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
        self._keys: dict[str, Keys] = {}
        self.files: dict[str, DataFile] = {}
        self._numbers = itertools.count(1)
        self._add(np.arange(keys))

    def change(self, keys: Keys) -> None:
        """A commit that updates these rows, each of which is named once."""
        found, marked = self._file[keys], set[str]()
        for number in np.unique(found):
            path = str(number)
            file, rows = self.files[path], self._row[keys[found == number]]
            dead = file.dead | BitMap64(rows)
            if len(dead) == file.rows:
                del self.files[path], self._keys[path]
                continue
            size = len(encode(dead))
            self.written.vectors += size
            self.files[path] = replace(file, dead=dead, vector_bytes=size)
            marked.add(path)
        self.costs.wrote([self.files[path] for path in marked], marked)
        self.written.new += self._add(keys)

    def tidy(self) -> None:
        self.written.files = max(self.written.files, len(self.files))
        self.costs.keep_only(self.files.values())
        chosen = pick([*self.files.values()], self.limits, costs=self.costs)
        if chosen:
            keys = np.concatenate([self._live(file) for file in chosen])
            for file in chosen:
                del self.files[file.path], self._keys[file.path]
            self.written.rewritten += self._add(keys)
            self.written.compactions += 1

    def dead_share(self) -> float:
        rows = sum(file.rows for file in self.files.values())
        return sum(len(file.dead) for file in self.files.values()) / rows

    def _live(self, file: DataFile) -> Keys:
        alive = np.ones(file.rows, np.bool_)
        alive[np.fromiter(file.dead, np.int64, len(file.dead))] = False
        return self._keys[file.path][alive]

    def _add(self, keys: Keys) -> int:
        """Files with these keys' rows; their bytes."""
        step, added = FILE_BYTES // self.row_bytes, 0
        for start in range(0, len(keys), step):
            some, number = keys[start : start + step], next(self._numbers)
            size = len(some) * self.row_bytes + FILE_OVERHEAD
            self._file[some], self._row[some] = number, np.arange(len(some))
            self.files[str(number)], self._keys[str(number)] = DataFile(str(number), len(some), size), some
            added += size
        return added


def uniform(keys: int, changes: int) -> Choose:
    return lambda random: np.unique(random.integers(0, keys, changes))


def skewed(keys: int, changes: int) -> Choose:
    """Nine tenths of the changes concern a hundredth of the keys, which lie all over the table."""
    hot = np.random.default_rng(0).permutation(keys)[: max(1, keys // 100)]

    def choose(random: np.random.Generator) -> Keys:
        often = hot[random.integers(0, len(hot), changes - changes // 10)]
        return np.union1d(often, random.integers(0, keys, changes // 10))

    return choose


def run(table: Simulated, choose: Choose, batches: int, every: int = 6) -> WrittenBytes:
    """Batches, with a look at what is to be compacted after `every` of them: a commit each five seconds by default."""
    random = np.random.default_rng(1)
    for number in range(1, batches + 1):
        table.change(choose(random))
        if number % every == 0:
            table.tidy()
    return table.written


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.vectors", description=__doc__)
    parser.add_argument("--file-mb", default="1,8,32,128")
    parser.add_argument("--row-bytes", default="20,200,1000")
    parser.add_argument("--changes", default="10,100,1000")
    parser.add_argument("--vector-shares", default="0.5,1,2,4,inf")
    parser.add_argument("--largest-shares", default="1")
    parser.add_argument("--batches", type=int, default=20_000, help="at most so many in a run")
    parser.add_argument("--every", type=int, default=6, help="commits between two looks")
    options = parser.parse_args()
    sizes, rows, changes = (map(int, text.split(",")) for text in (options.file_mb, options.row_bytes, options.changes))
    shares = [tuple(map(float, text.split(","))) for text in (options.vector_shares, options.largest_shares)]
    for mb, row_bytes, number, choose in itertools.product(sizes, rows, changes, (uniform, skewed)):
        keys = (mb << 20) // row_bytes
        batches = min(options.batches, max(FEWEST, 3 * keys // number))
        print(f"{mb} MB, rows of {row_bytes} B, {number} {choose.__name__} changes a batch, {batches} batches")
        for vector_share, largest_share in itertools.product(*shares):
            limits = CompactionLimits(vector_share=vector_share, largest_share=largest_share)
            done = run(Simulated(keys, row_bytes, limits), choose(keys, number), batches, options.every)
            new, vectors, rewritten = (round(n / batches / 1e3, 1) for n in (done.new, done.vectors, done.rewritten))
            print(
                f"  {vector_share:g}, {largest_share:g}: {vectors + rewritten:.1f} kB a batch ({vectors} vectors,"
                f" {rewritten} rewritten) besides {new}; {done.compactions} compactions, {done.files} files",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
