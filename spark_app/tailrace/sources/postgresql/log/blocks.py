"""A block of raw messages. Filled by `assembler.Assembler`, decoded as one by `decode.Decoder`.

Beside rows it holds the Relation messages that are in effect for what follows them, and TRUNCATE messages.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from tailrace.sources.log.blocks import Block

MESSAGE_OVERHEAD = 60
"""Bytes of Python object per message, counted towards a block's limit so that tiny rows do not fill the memory."""

TAKEN_BACK = 0
"""A kind of message of our own: with the relation id of a row that was rolled back, and stood behind the description of
the partition that it went to."""


class MessageBlock(Block[bytes]):
    @staticmethod
    @override
    def weight(items: list[bytes]) -> int:
        return sum(map(len, items)) + MESSAGE_OVERHEAD * len(items)

    @override
    def add(self, item: bytes) -> None:
        self.items.append(item)
        self.size += len(item) + MESSAGE_OVERHEAD

    def extend(self, messages: list[bytes], limit: int) -> bool:
        """Add them all, if the size then stays below `limit`."""
        size = self.size + self.weight(messages)
        if size >= limit:
            return False
        self.items += messages
        self.size = size
        return True


@dataclass(frozen=True)
class FlatBlock:
    """The bytes of a block in one buffer, to be read by column."""

    data: bytes
    buffer: NDArray[np.uint8]
    starts: NDArray[np.int64]
    """The start of each message."""
    ends: NDArray[np.int64]
    """Behind each message."""
    kinds: NDArray[np.uint8]
    commit_ts: NDArray[np.int64]
    xids: NDArray[np.int64]
    mark_of: NDArray[np.int64]
    """Index of each message's transaction in the block's marks."""

    @staticmethod
    def of(block: MessageBlock) -> "FlatBlock":
        data = b"".join(block.items)
        count = len(block.items)
        lengths = np.fromiter(map(len, block.items), dtype=np.int64, count=count)
        starts = np.zeros(count, dtype=np.int64)
        np.cumsum(lengths[:-1], out=starts[1:])
        buffer = np.frombuffer(data, dtype=np.uint8)
        mark_of = block.mark_of()
        commit_ts = np.fromiter((m.commit_ts for m in block.marks), dtype=np.int64, count=len(block.marks))
        xids = np.fromiter((m.number for m in block.marks), dtype=np.int64, count=len(block.marks))
        return FlatBlock(
            data, buffer, starts, starts + lengths, buffer[starts], commit_ts[mark_of], xids[mark_of], mark_of
        )

    def message(self, index: int) -> bytes:
        return self.data[int(self.starts[index]) : int(self.ends[index])]


def big_endian_32(buffer: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Unsigned 32-bit numbers at these places."""
    return (
        (buffer[at].astype(np.int64) << 24)
        | (buffer[at + 1].astype(np.int64) << 16)
        | (buffer[at + 2].astype(np.int64) << 8)
        | buffer[at + 3].astype(np.int64)
    )


def big_endian_16(buffer: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Unsigned 16-bit numbers at these places."""
    return (buffer[at].astype(np.int64) << 8) | buffer[at + 1].astype(np.int64)
