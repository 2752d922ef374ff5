"""A block: raw row messages of consecutive transactions, in log order, small enough for memory.

Filled by `transactions.Assembler`, decoded as one by `decode.Decoder`. Beside rows it holds the Relation messages that
are in effect for what follows them, and TRUNCATE messages. Marks say where each transaction begins.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MESSAGE_OVERHEAD = 60
"""Bytes of Python object per message, counted towards a block's limit so that tiny rows do not fill the memory."""

TAKEN_BACK = 0
"""A kind of message of our own: with the relation id of a row that was rolled back, and stood behind the description of
the partition that it went to."""


class Mark(NamedTuple):
    """The start of a transaction's changes: from message `at` on. (One per transaction: a tuple is made fastest.)"""

    at: int
    xid: int
    """64-bit, top-level."""
    commit_ts: int
    """Microseconds since the Unix epoch."""


@dataclass
class MessageBlock:
    messages: list[bytes] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    size: int = 0

    def add(self, message: bytes) -> None:
        self.messages.append(message)
        self.size += len(message) + MESSAGE_OVERHEAD

    def extend(self, messages: list[bytes], limit: int) -> bool:
        """Add them all, if the size then stays below `limit`."""
        size = self.size + sum(map(len, messages)) + MESSAGE_OVERHEAD * len(messages)
        if size >= limit:
            return False
        self.messages += messages
        self.size = size
        return True

    def begin(self, xid: int, commit_ts: int) -> None:
        self.marks.append(Mark(len(self.messages), xid, commit_ts))

    def split(self, at: int) -> tuple["MessageBlock", "MessageBlock"]:
        """Before and from message `at`, which is where a transaction begins or nothing follows."""
        if at == len(self.messages) and all(m.at < at for m in self.marks):
            return self, MessageBlock()
        head = MessageBlock(self.messages[:at], [m for m in self.marks if m.at < at])
        tail = MessageBlock(self.messages[at:], [Mark(m.at - at, m.xid, m.commit_ts) for m in self.marks if m.at >= at])
        for part in (head, tail):
            part.size = sum(map(len, part.messages)) + MESSAGE_OVERHEAD * len(part.messages)
        return head, tail

    def continuation(self) -> "MessageBlock":
        """An empty block that continues the last transaction."""
        last = self.marks[-1]
        return MessageBlock(marks=[Mark(0, last.xid, last.commit_ts)])


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
        data = b"".join(block.messages)
        count = len(block.messages)
        lengths = np.fromiter(map(len, block.messages), dtype=np.int64, count=count)
        starts = np.zeros(count, dtype=np.int64)
        np.cumsum(lengths[:-1], out=starts[1:])
        buffer = np.frombuffer(data, dtype=np.uint8)
        marks = np.fromiter((m.at for m in block.marks), dtype=np.int64, count=len(block.marks))
        mark_of = np.searchsorted(marks, np.arange(count), side="right") - 1
        commit_ts = np.fromiter((m.commit_ts for m in block.marks), dtype=np.int64, count=len(block.marks))
        xids = np.fromiter((m.xid for m in block.marks), dtype=np.int64, count=len(block.marks))
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
