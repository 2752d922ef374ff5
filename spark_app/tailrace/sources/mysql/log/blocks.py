"""A block of row events. Filled by `assembler.Assembler`, decoded as one by `decode.Decoder`."""

from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import NamedTuple

from typing_extensions import override

from tailrace.sources.log.blocks import Block, Mark

EVENT_OVERHEAD = 100
"""Bytes of Python objects per event, counted towards a block's limit so that tiny rows do not fill the memory."""
TRUNCATE = 0
"""A kind of our own: the table of the form was emptied here."""
UNCERTAIN = 0x1000
"""Added to the kind of row events that may not have happened, although the log has them."""


class RowEvent(NamedTuple):
    kind: int
    form: bytes
    """The table map in force, without the table's id; of TRUNCATE the table's name."""
    body: bytes


def row_events(kinds: Iterable[int], forms: Iterable[bytes], bodies: Iterable[bytes]) -> list[RowEvent]:
    """Many at once: without a call of Python's for each they take two thirds of the time."""
    return list(map(partial(tuple.__new__, RowEvent), zip(kinds, forms, bodies, strict=True)))


def marks(at: Iterable[int], prefixes: Iterable[str], numbers: Iterable[int], times: Iterable[int]) -> list[Mark]:
    """Many at once, of transactions that are no XA COMMIT."""
    return list(map(partial(tuple.__new__, Mark), zip(at, prefixes, numbers, times, repeat(None))))


class EventBlock(Block[RowEvent]):
    @staticmethod
    @override
    def weight(items: list[RowEvent]) -> int:
        return sum(len(event.body) + EVENT_OVERHEAD for event in items)

    @override
    def add(self, item: RowEvent) -> None:
        self.items.append(item)
        self.size += len(item.body) + EVENT_OVERHEAD
