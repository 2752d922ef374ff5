"""File objects as `pyarrow.parquet` wants them; `Storage.open_input` and `open_output` make them.

Outputs appear whole or not at all. Closing one does nothing: only the end of the `with` block of `open_output` gives
the object its name, so that a writer that dies half-way leaves no half object behind.
"""

import io
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import obstore
from typing_extensions import override

from tailrace.storage import local

PARTS_AT_ONCE = 8
"""Parts of an upload that are sent at the same time."""
PART_SIZE = 8 << 20
"""Bytes of one part of an upload; smaller files go up in one request."""
Errors = Callable[[], AbstractContextManager[None]]


class Output(io.RawIOBase):
    """`size`: bytes written so far."""

    def __init__(self, errors: Errors) -> None:
        super().__init__()
        self.size = 0
        self._errors = errors

    @override
    def writable(self) -> bool:
        return True

    @override
    def tell(self) -> int:
        return self.size

    @override
    def flush(self) -> None:
        """Nothing is promised before the block ends."""

    @override
    def close(self) -> None:
        """pyarrow closes what it has written to; the block's end decides."""

    @override
    def write(self, data: Any) -> int:
        with self._errors():
            self._write(data)
        length = memoryview(data).nbytes
        self.size += length
        return length

    def _write(self, data: Any) -> None:
        raise io.UnsupportedOperation("write")

    def finish(self) -> None:
        raise io.UnsupportedOperation("finish")

    def abort(self) -> None:
        raise io.UnsupportedOperation("abort")


class LocalOutput(Output):
    def __init__(self, path: Path, errors: Errors) -> None:
        super().__init__(errors)
        self._path = path
        self._handle, self._aside = local.open_aside(path)

    @override
    def _write(self, data: Any) -> None:
        self._handle.write(data)

    @override
    def finish(self) -> None:
        try:
            with self._handle:
                self._handle.flush()
                os.fsync(self._handle.fileno())
            local.publish(str(self._aside), str(self._path), exclusive=False)
        finally:
            self._aside.unlink(missing_ok=True)

    @override
    def abort(self) -> None:
        with suppress(OSError):  # it would write out what is given up, perhaps to a full disk
            self._handle.close()
        self._aside.unlink(missing_ok=True)


class RemoteOutput(Output):
    """One request up to `PART_SIZE` bytes, a multipart upload above; an aborted upload is left to the bucket's expiry
    of incomplete uploads."""

    def __init__(self, store: Any, key: str, errors: Errors) -> None:
        super().__init__(errors)
        self._writer = obstore.open_writer(store, key, buffer_size=PART_SIZE, max_concurrency=PARTS_AT_ONCE)

    @override
    def _write(self, data: Any) -> None:
        # The writer takes bytes objects and Python buffers, but no Arrow buffer.
        self._writer.write(bytes(data))

    @override
    def finish(self) -> None:
        self._writer.close()

    @override
    def abort(self) -> None:
        del self._writer


class RemoteInput(io.RawIOBase):
    """Ranged reads of one object of a store that Arrow cannot read by itself."""

    def __init__(self, store: Any, key: str, errors: Errors) -> None:
        super().__init__()
        self._store = store
        self._key = key
        self._errors = errors
        self._position = 0
        self._size = int(obstore.head(store, key)["size"])

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def tell(self) -> int:
        return self._position

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    @override
    def read(self, size: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        length = left if size < 0 else min(size, left)
        if length == 0:
            return b""
        with self._errors():
            data = bytes(obstore.get_range(self._store, self._key, start=self._position, length=length))
        self._position += len(data)
        return data
