"""Rows of integers that only grow at the end and only shrink at the front, in a few bytes each. Pure.

The state keeps a line for every segment and every transaction that the log may still need: millions of them.
`PackedRows` holds such lines as columns of int64. Every `BLOCK` lines become an immutable block of compressed
differences; the rest is the tail. A `PackedRows` is a value: `append` and `drop` return another one that shares the
blocks. Lines and blocks keep their numbers when others before them are dropped, so that roll-ups can store each block
once (`changelog.rollup`).
"""

import zlib
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema
from typing_extensions import override

Matrix = npt.NDArray[np.int64]

WITHOUT_BLOCKS = "without blocks"
"""Context of a state's serialisation whose blocks are stored elsewhere."""

BLOCK = 128
"""Lines of a block. More compress better, but each append copies the tail, and each table has one."""
DECODED = 64
"""Decoded blocks that are kept: a reader of a table's lines reads their neighbours next."""


class PackedBlock(NamedTuple):
    """`BLOCK` lines: the first and the last as they are, all differences compressed."""

    first: bytes
    last: bytes
    rest: bytes

    def column_of_last(self, column: int) -> int:
        return int(np.frombuffer(self.last, np.int64)[column])


@lru_cache(DECODED)
def decode(block: PackedBlock) -> Matrix:
    first = np.frombuffer(block.first, np.int64)
    planes = np.frombuffer(zlib.decompress(block.rest), np.uint8).reshape(len(first), 8, -1)
    # Differences wrap around like their sum does, so any int64 comes back.
    steps = np.ascontiguousarray(planes.transpose(0, 2, 1)).view(np.int64)[:, :, 0]
    lines = np.empty((steps.shape[1] + 1, len(first)), np.int64)
    lines[0] = first
    np.cumsum(steps.T, axis=0, out=lines[1:])
    lines[1:] += first
    lines.flags.writeable = False
    return lines


def encode(lines: Matrix) -> PackedBlock:
    """Differences of neighbours, by column and by byte: nearly all of these bytes are zero."""
    steps = np.ascontiguousarray(np.diff(lines, axis=0).T)
    planes = steps.view(np.uint8).reshape(lines.shape[1], -1, 8).transpose(0, 2, 1)
    return PackedBlock(lines[0].tobytes(), lines[-1].tobytes(), zlib.compress(planes.tobytes(), 6))


class PackedRows:
    """Lines `offset` to `end`, each of `width` integers."""

    __slots__ = ("_blocks", "_tail", "offset", "width")

    def __init__(self, width: int, offset: int = 0, blocks: tuple[PackedBlock, ...] = (), tail: bytes = b"") -> None:
        self.width = width
        self.offset = offset
        self._blocks = blocks
        self._tail = tail

    @classmethod
    def of(cls, lines: Matrix) -> "PackedRows":
        return cls(lines.shape[1]).append(lines)

    @property
    def first_block(self) -> int:
        """The number of the first block that is kept, or of the one to come."""
        return self.offset // BLOCK

    @property
    def blocks(self) -> tuple[PackedBlock, ...]:
        return self._blocks

    @property
    def end(self) -> int:
        """The number of the line to come."""
        return (self.first_block + len(self._blocks)) * BLOCK + len(self._tail) // (8 * self.width)

    def __len__(self) -> int:
        return self.end - self.offset

    @override
    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PackedRows) and self.width == other.width and np.array_equal(self.lines(), other.lines())
        )

    __hash__ = None  # type: ignore[assignment]  # compared by content, never a key

    def append(self, lines: Matrix) -> "PackedRows":
        if not len(lines):
            return self
        tail = self._tail + np.ascontiguousarray(lines, np.int64).tobytes()
        size, blocks = BLOCK * 8 * self.width, list(self._blocks)
        while len(tail) >= size:
            blocks.append(encode(np.frombuffer(tail[:size], np.int64).reshape(-1, self.width)))
            tail = tail[size:]
        return PackedRows(self.width, self.offset, tuple(blocks), tail)

    def drop(self, count: int) -> "PackedRows":
        """Without the first `count` lines."""
        offset = self.offset + count
        gone = offset // BLOCK - self.first_block
        return PackedRows(self.width, offset, self._blocks[gone:], self._tail)

    def lines(self, start: int = 0, stop: int | None = None) -> Matrix:
        """The lines from `start` to `stop`, counted from the first that is kept."""
        parts = list(self.pieces(start, stop))
        return np.concatenate(parts) if parts else np.empty((0, self.width), np.int64)

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[Matrix]:
        """Yields the rows block by block."""
        stop = len(self) if stop is None else min(stop, len(self))
        skip = self.offset - self.first_block * BLOCK
        at, until = start + skip, stop + skip
        while at < until:
            number, inside = divmod(at, BLOCK)
            piece = self._piece(number)[inside : inside + until - at]
            yield piece
            at += len(piece)

    def _piece(self, number: int) -> Matrix:
        if number < len(self._blocks):
            return decode(self._blocks[number])
        return np.frombuffer(self._tail, np.int64).reshape(-1, self.width)

    def line(self, index: int) -> Matrix:
        """`IndexError` beyond the last."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        number, inside = divmod(index + self.offset % BLOCK, BLOCK)
        return np.asarray(self._piece(number)[inside])

    def find(self, column: int, value: int) -> int:
        """The number of lines with less than `value` in a column that never falls."""
        number = bisect_left(self._blocks, value, key=lambda block: block.column_of_last(column))
        piece = self._piece(number)
        # Dropped lines of the first block come first, so they do no harm to the order.
        inside = int(np.searchsorted(piece[:, column], value, "left"))
        return max(0, number * BLOCK + inside - (self.offset - self.first_block * BLOCK))

    # ---- as JSON ----

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, PackedRows) else cls.from_document(value),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda rows, info: rows.head() if info.context == WITHOUT_BLOCKS else rows.document(), info_arg=True
            ),
        )

    def head(self) -> dict[str, Any]:
        """All but the blocks, for who stores those elsewhere."""
        tail = zlib.compress(np.ascontiguousarray(self._piece(len(self._blocks)).T).tobytes(), 6)
        return {"width": self.width, "offset": self.offset, "end": self.end, "tail": b64encode(tail).decode()}

    def document(self) -> dict[str, Any]:
        """All of it."""
        return {**self.head(), "blocks": [block_text(block) for block in self._blocks]}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "PackedRows":
        """`blocks`: as texts, or as they are when they come from elsewhere."""
        width, offset = int(document["width"]), int(document["offset"])
        blocks = [b if isinstance(b, PackedBlock) else block_of(b, width) for b in document["blocks"]]
        tail = np.frombuffer(zlib.decompress(b64decode(document["tail"])), np.int64).reshape(width, -1)
        made = cls(width, offset, tuple(blocks), np.ascontiguousarray(tail.T).tobytes())
        if made.end != document["end"]:
            raise ValueError(f"rows end at {made.end}, not at {document['end']}: blocks are missing")
        return made


def block_text(block: PackedBlock) -> str:
    return b64encode(b"".join(block)).decode()


def block_of(text: str, width: int) -> PackedBlock:
    data, size = b64decode(text), 8 * width
    return PackedBlock(data[:size], data[size : 2 * size], data[2 * size :])
