"""Finding keys that are random texts in a table's data files, as apply does before each commit.

    PYTHONPATH=tools:spark_app python -m bench.locate [--rows 16000000] [--batches 1000,100000] [--whole]

Makes data files of a million rows each, whose keys are 32 random hexadecimal digits, and prints the CPU seconds of the
first batch (which reads the files' keys), of later ones, and of the first one after a restart: everything is forgotten
but the run directory, and the batch is found by a process that has just imported the engine.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract.resources import StorageLocation
from tailrace.storage.store import Storage
from tailrace.targets.lake.files import locate
from tailrace.targets.lake.files.index_cache import IndexCache
from tailrace.targets.lake.files.key_files import KeyFiles
from tailrace.targets.lake.files.layout import Layout, physical_field
from tailrace.targets.lake.files.write import GROUP_ROWS
from tailrace.targets.lake.model import DataFile

SCHEMA = TableSchema(
    table_id=1, schema_name="bench", table_name="keys", version=1,
    columns=(Column(name="k", id=1, source_type="text", type="string", nullable=False, key=0),),
)  # fmt: skip
LAYOUT = Layout(SCHEMA, pa.schema([physical_field("k", "string", 1)]))
CACHE = IndexCache(512 << 20)
FILE_ROWS, SAMPLE = 1_000_000, 10_000
REPEATED = 5


def fill(folder: Path, rows: int) -> None:
    """Data files, and `sample.parquet` with some of the keys."""
    random, sample = np.random.default_rng(1), []
    for number in range(-(-rows // FILE_ROWS)):
        bits = random.integers(0, 256, (FILE_ROWS, 16), np.uint8)
        text = pa.py_buffer(bits.tobytes().hex().encode())
        keys = pa.Array.from_buffers(pa.binary(32), FILE_ROWS, [None, text]).cast(pa.binary()).cast(pa.string())
        pq.write_table(pa.table({"k": keys}), folder / f"{number}.parquet", row_group_size=GROUP_ROWS,
                       use_dictionary=False, compression="zstd")  # fmt: skip
        sample.append(keys.slice(0, SAMPLE))
    pq.write_table(pa.table({"k": pa.chunked_array(sample)}), folder / "sample.parquet")


def batch(folder: Path, keys: int, seed: int) -> tuple[float, float]:
    """CPU and wall seconds of one batch of keys that exist."""
    files = [
        DataFile(path.as_uri(), FILE_ROWS, path.stat().st_size)
        for path in sorted(folder.glob("*.parquet"))
        if path.stem.isdigit()
    ]
    sample = pq.read_table(folder / "sample.parquet")
    wanted = sample.take(np.random.default_rng(seed).choice(sample.num_rows, keys, replace=False))
    lake = Storage.open(StorageLocation(location=folder.as_uri()))
    cpu, wall = time.process_time(), time.perf_counter()
    found = locate.locate(lake, files, LAYOUT, wanted, CACHE)
    taken = time.process_time() - cpu, time.perf_counter() - wall
    assert sum(len(hits.keys) for hits in found.values()) == keys, "every key is there once"
    return taken


def run(folder: Path, batches: list[int]) -> None:
    start = time.process_time()
    CACHE.kept = KeyFiles(folder / "key-indexes", 1 << 40)
    print(f"opened: {time.process_time() - start:.3f} CPU s")
    for keys in batches:
        for number in range(REPEATED):
            cpu, wall = batch(folder, keys, number)
            print(f"{keys:>9,} keys, batch {number + 1}: {cpu:.3f} CPU s, {wall:.3f} s", flush=True)
    memory = Path("/proc/self/smaps_rollup").read_text().splitlines()
    private = next(line.split()[1] for line in memory if line.startswith("Anonymous"))
    print(f"disk {CACHE.kept.size >> 20:,} MiB, memory {int(private) >> 10:,} MiB without mapped files")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.locate", description=__doc__)
    parser.add_argument("--rows", type=int, default=16_000_000)
    parser.add_argument("--batches", default="1000,50000")
    parser.add_argument("--folder", type=Path, help="kept; made by an earlier run, it is used again")
    parser.add_argument("--again", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    batches = [int(number) for number in options.batches.split(",")]
    if options.again:
        run(options.folder, batches)
        return
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as made:
        folder = options.folder or Path(made)
        folder.mkdir(exist_ok=True)
        if not (folder / "sample.parquet").exists():
            fill(folder, options.rows)
        command = [sys.executable, "-m", "bench.locate", "--again", "--folder", str(folder)]
        for what in ("first start", "after a restart"):
            print(what, f"(load {os.getloadavg()[0]:.0f})", flush=True)
            subprocess.run([*command, "--batches", options.batches], check=True)


if __name__ == "__main__":
    main()
