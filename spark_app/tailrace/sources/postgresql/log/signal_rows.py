"""Rows that were inserted into the signal table, of one Relation message. Called by `decode.Decoder`."""

import numpy as np
from numpy.typing import NDArray

from tailrace.sources.postgresql.log import pgoutput
from tailrace.sources.postgresql.log.blocks import FlatBlock
from tailrace.sources.signals import SignalRow, signal_row


def inserted(flat: FlatBlock, rows: NDArray[np.int64]) -> list[tuple[int, int, SignalRow]]:
    """Message, place among the message's rows, and row; `rows`: the row messages."""
    found = []
    for index in rows[flat.kinds[rows] == pgoutput.INSERT].tolist():
        values = pgoutput.inserted(flat.message(index))
        # A SQL_ASCII database checks no text.
        row = signal_row([None if v is None else v.decode(errors="backslashreplace") for v in values])
        if row is not None:
            found.append((index, 0, row))
    return found
