"""Bundles: the small segments of a record, of many tables, in one object.

A record with one row in each of 200 tables is one object instead of 200 (docs/decisions/0057). Capture collects them
(`record_segments`) and writes each bundle before the record that names it; `segments.open_segment` reads them.

A bundle is an Arrow IPC stream whose rows are segments: table, first sequence, and the segment's rows as an Arrow IPC
stream of their own. Only the outer one is compressed: the inner schemas repeat each other. A segment that is neither
small nor large has a bundle to itself, which is read in a fraction of the time that a Parquet file takes
(docs/decisions/0162).
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import pyarrow as pa

from tailrace.changelog.paths import bundle_path
from tailrace.changelog.records import Segment
from tailrace.changelog.records.terms import Seq
from tailrace.errors import CorruptLog, privacy
from tailrace.storage.store import Storage

SMALL = 8 << 10
"""Bytes of a segment's rows, uncompressed, from which on it shares its object with no other: whoever reads one table
reads few rows of others, also where many tables catch up, each by itself."""
LARGE = 64 << 10
"""Bytes from which on it is a Parquet file, whose columns can be read one by one."""
FULL = 512 << 10
"""Bytes of rows, uncompressed, with which a bundle is written: what a reader decodes for one segment is bounded."""
CACHED = 32 << 20
"""Bytes of bundles that a process keeps decoded: its tables read the same bundle one after another."""
ENTRY = 4 << 10
"""Bytes that a kept bundle costs besides, so that many tiny ones are bounded, too."""
LAYOUT = pa.schema(
    [
        pa.field("table", pa.int64(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("rows", pa.binary(), nullable=False),
    ]
)
KEPT_SCHEMAS = 4096
_SCHEMAS: dict[bytes, pa.Schema] = {}
"""The columns of parts, by the message that begins each."""
_HEAD = 8
"""Bytes of an Arrow message before its metadata, the last four of which say how long that is."""
RESTORE = "Put the file back as it was, or start with a new change log and new target tables."


class ObjectAccess(Protocol):
    """Access to the change log's objects by their paths."""

    def get(self, path: str) -> bytes: ...

    def open_input(self, path: str) -> pa.NativeFile: ...


def encoded(data: pa.Table) -> bytes | None:
    """The rows as they are in a bundle; None: they are many."""
    if data.nbytes >= LARGE:
        return None
    sink = pa.BufferOutputStream()
    columns = [c.chunk(0) if c.num_chunks == 1 else c.combine_chunks() for c in data.columns]
    with pa.ipc.new_stream(sink, data.schema) as stream:
        stream.write_batch(pa.record_batch([*map(_cleared, columns)], schema=data.schema))
    rows = sink.getvalue()
    return rows.to_pybytes() if rows.size < LARGE else None


def _cleared(column: pa.Array) -> pa.Array:
    """Values equal to these, with zeros under the NULLs. An Arrow stream, unlike Parquet, has what stands there: with
    decoders that gather fixed widths, the bytes of other columns, which may be masked or not copied."""
    if column.null_count == len(column):
        return pa.nulls(len(column), column.type)
    if pa.types.is_struct(column.type):
        children = [_cleared(child) for child in column.flatten()]
        return pa.StructArray.from_arrays(children, fields=list(column.type), mask=column.is_null())
    if column.null_count or pa.types.is_list(column.type):
        return column.take(pa.array(np.arange(len(column))))
    return column


class Bundle:
    """Segments that wait for more before they are written."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []
        self._rows: list[bytes] = []
        self.size = 0
        """Bytes of rows."""

    def add(self, segment: Segment, rows: bytes) -> None:
        self._segments.append(segment)
        self._rows.append(rows)
        self.size += len(rows)

    def write(self, storage: Storage, token: str) -> str:
        """Write what was added as one object, whose path is returned; durable then."""
        first, last = min(s.first_seq for s in self._segments), max(s.last_seq for s in self._segments)
        tables, firsts = [s.table_id for s in self._segments], [s.first_seq for s in self._segments]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, LAYOUT, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_batch(pa.record_batch([tables, firsts, self._rows], schema=LAYOUT))
        path = bundle_path(first, last, token)
        storage.put(path, sink.getvalue().to_pybytes())
        return path


def bundled_rows(log: ObjectAccess, segment: Segment) -> pa.Table:
    """The rows of a segment that is part of a bundle."""
    parts = BUNDLES_READ.get(log, segment.path)
    rows = parts.get((segment.table_id, segment.first_seq))
    if rows is None:
        raise CorruptLog(f"segment {segment.path} has no rows of table {segment.table_id}", RESTORE)
    with _ipc_errors(segment.path):
        return pa.ipc.open_stream(rows).read_all()


def bundled_batch(log: ObjectAccess, segment: Segment) -> pa.RecordBatch:
    """The rows of a segment that is part of a bundle, without reading their columns' names and types again if another
    segment had the same. Of rows that no `encoded` has made, these are perhaps only the first."""
    rows = BUNDLES_READ.get(log, segment.path).get((segment.table_id, segment.first_seq))
    if rows is None:
        raise CorruptLog(f"segment {segment.path} has no rows of table {segment.table_id}", RESTORE)
    with _ipc_errors(segment.path):
        data = memoryview(rows)
        size = min(len(data), _HEAD + int.from_bytes(data[_HEAD - 4 : _HEAD], "little"))
        head = bytes(data[:size])
        schema = _SCHEMAS.get(head)
        if schema is None:
            if len(_SCHEMAS) >= KEPT_SCHEMAS:
                _SCHEMAS.clear()
            schema = _SCHEMAS[head] = pa.ipc.read_schema(rows)
        return pa.ipc.read_record_batch(rows.slice(size), schema)


Parts = dict[tuple[int, Seq], pa.Buffer]
"""The encoded rows by table and first sequence."""


class BundleCache:
    """The bundles that were read last. Threads that want the same one wait for one request."""

    def __init__(self, limit: int = CACHED) -> None:
        self._limit = limit
        self._size = 0
        self._found: OrderedDict[str, Future[Parts]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, log: ObjectAccess, path: str) -> Parts:
        with self._lock:
            known = self._found.get(path)
            if known is not None:
                self._found.move_to_end(path)
            else:
                future = self._found[path] = Future()
        if known is not None:
            return known.result()
        try:
            parts = _decoded(path, log.get(path))
        except BaseException as error:
            with self._lock:
                del self._found[path]
            future.set_exception(error)
            raise
        with self._lock:
            future.set_result(parts)
            self._size += _size(parts)
            self._trim()
        return parts

    def _trim(self) -> None:
        """Forget the oldest; those that are being read have no size yet."""
        while self._size > self._limit:
            oldest = next(path for path, parts in self._found.items() if parts.done())
            self._size -= _size(self._found.pop(oldest).result())


BUNDLES_READ = BundleCache()
"""One for the process: bundles are immutable and their names, with a random token, are never used twice."""


def _size(parts: Parts) -> int:
    return ENTRY + sum(int(rows.size) for rows in parts.values())


def _decoded(path: str, data: bytes) -> Parts:
    with _ipc_errors(path):
        found = pa.ipc.open_stream(data).read_all()
        if not found.schema.equals(LAYOUT):
            raise CorruptLog(f"segment {path} is a bundle with the columns {found.schema.names}", RESTORE)
        tables, firsts = found["table"].to_pylist(), found["first"].to_pylist()
        return {(t, Seq(f)): rows.as_buffer() for t, f, rows in zip(tables, firsts, found["rows"], strict=True)}


@contextmanager
def _ipc_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorruptLog(f"segment {path} is not a bundle: {privacy.error_text(error)}", RESTORE) from error
