"""Clear values in what Tailrace has written: the bytes of every file, the decoded columns of every Parquet file and
every bundle of the change log (whose bytes are looked at, too: also those under NULLs), and the decompressed blocks of
every Avro file (Iceberg's manifests have the bounds of columns)."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from support.segment_files import bundled, streams


def found_in(folder: Path, value: str) -> list[str]:
    """Files below the folder that hold the value, be it inside of other text."""
    raw = value.encode()
    return [str(path) for path in sorted(folder.rglob("*")) if path.is_file() and any(raw in t for t in _texts(path))]


def decoded_rows(folder: Path) -> int:
    """How many rows the search sees decoded."""
    return sum(table.num_rows for path in folder.rglob("*") if path.is_file() for table in _tables(path))


def _is_parquet(path: Path) -> bool:
    return path.read_bytes()[:4] == b"PAR1"


def _texts(path: Path) -> Iterator[bytes]:
    raw = path.read_bytes()
    yield raw
    if raw[:4] == b"Obj\x01":
        yield from _avro_blocks(raw)
    if path.suffix == ".arrow":
        yield from streams(path)
    for table in _tables(path):
        yield from (repr(column.to_pylist()).encode() for column in table.columns)


def _tables(path: Path) -> Iterator[pa.Table]:
    if _is_parquet(path):
        yield pq.ParquetFile(path).read()
    if path.suffix == ".arrow":
        tables = [rows for _, _, rows in bundled(path)]
        assert tables and all(rows.num_rows for rows in tables), f"{path} shows nothing: is it another format?"
        yield from tables


def _avro_blocks(raw: bytes) -> Iterator[bytes]:
    """A header, then blocks (two numbers, rows as the header's codec left them), each ended by the same mark."""
    mark = raw[-16:]
    header, *blocks, _ = raw.split(mark)
    deflated = b"\x14avro.codec\x0edeflate" in header
    assert deflated or b"\x14avro.codec\x08null" in header or b"avro.codec" not in header, header
    for block in blocks:
        at = 0
        for _ in range(2):
            while block[at] & 0x80:
                at += 1
            at += 1
        yield zlib.decompress(block[at:], -15) if deflated else block[at:]
