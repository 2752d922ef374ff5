"""Rows as a server sends them, which another server of the same product takes as they are: nothing decodes them but
their key.

A target says in which form it takes the rows of a table (`targets.api.ChunkWriter.wire`), a source whether it sends
just that (`sources.api.ChunkReader.wire`), and `reading.task` brings them together: neither knows the other.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True)
class WireForm:
    product: str
    """A name for how the product's servers send and take rows."""
    columns: tuple[tuple[str, str], ...]
    """Name and type of each column, in the order in which rows have them: the key's first."""


@dataclass(frozen=True)
class WireRows:
    data: bytes
    """The rows, without what begins and ends them all."""
    ends: npt.NDArray[np.int64]
    """The end of each row in it."""
    keys: pa.RecordBatch
    """The columns of the key, of their logical types."""


class WireRefused(Exception):
    """The target does not take a value as it was sent, or the source cannot tell its key. The rows are to be read as
    values: what is wrong is named then."""
