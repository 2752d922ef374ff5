"""Whole transactions that have nothing but rows, taken without a call of Python's for each message.

Used by the assembler, which feeds everything else message by message. Of a source with small transactions two of three
messages are Begin and Commit: their fields are read by column.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, repeat
from operator import itemgetter

import numpy as np

from tailrace.sources.log.blocks import Mark
from tailrace.sources.postgresql.log.pgoutput import BEGIN, COMMIT, POSTGRES_EPOCH, ROWS

_BEGIN = np.dtype([("kind", "u1"), ("final_lsn", ">u8"), ("commit_ts", ">i8"), ("xid", ">u4")])
_COMMIT = np.dtype([("kind", "u1"), ("flags", "u1"), ("lsn", ">u8"), ("end_lsn", ">u8"), ("commit_ts", ">i8")])
_RUN = re.compile(rb"(?:B[IUD]+C)+")
_IS_ROW = bytes(kind in ROWS for kind in range(256))
_MARK = partial(tuple.__new__, Mark)


@dataclass(frozen=True)
class Run:
    """Consecutive whole transactions."""

    first: int
    """The place of its first message."""
    behind: int
    rows: list[bytes]
    places: list[int]
    """Rows of the run before each transaction."""
    xids: list[int]
    """32 bits."""
    commit_ts: list[int]
    end_lsn: int
    """Behind the last of them."""

    def marks(self, at: int, extend_xid: Callable[[int], int]) -> Iterator[Mark]:
        """`at`: the place of the first row in its block."""
        places = (np.array(self.places) + at).tolist()
        return map(_MARK, zip(places, repeat(""), map(extend_xid, self.xids), self.commit_ts, repeat(None)))


def runs(messages: Sequence[bytes]) -> Iterator[Run]:
    """All of them, in order. What is cut off is none: whoever reads it message by message says so."""
    kinds = bytes(map(itemgetter(0), messages))
    for found in _RUN.finditer(kinds):
        run = _run(messages, kinds, *found.span())
        if run is not None:
            yield run


def _run(messages: Sequence[bytes], kinds: bytes, first: int, behind: int) -> Run | None:
    part, of_run = messages[first:behind], np.frombuffer(kinds, np.uint8, behind - first, first)
    opens, closes = np.flatnonzero(of_run == BEGIN), np.flatnonzero(of_run == COMMIT)
    begins = [part[i] for i in opens.tolist()]
    commits = [part[i] for i in closes.tolist()]
    if {*map(len, begins)} != {_BEGIN.itemsize} or {*map(len, commits)} != {_COMMIT.itemsize}:
        return None
    begun = np.frombuffer(b"".join(begins), _BEGIN)
    ended = np.frombuffer(b"".join(commits), _COMMIT)
    return Run(
        first,
        behind,
        list(compress(part, kinds[first:behind].translate(_IS_ROW))),
        (opens - 2 * np.arange(len(opens))).tolist(),
        begun["xid"].tolist(),
        (begun["commit_ts"].astype(np.int64) + POSTGRES_EPOCH).tolist(),
        int(ended["end_lsn"].max()),
    )
