"""COPY into a table of PostgreSQL, by values or by rows that another server has sent. Called by the session."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pyarrow as pa

from tailrace.databases.postgresql.connect import Connection, error_text
from tailrace.databases.wire import WireRefused
from tailrace.errors import Retry, privacy
from tailrace.targets.postgresql import texts
from tailrace.targets.postgresql.binary import BEGIN, END, Encoding, UnfitBinary, tuples
from tailrace.targets.sql.session import Definitions

COPY_ROWS = 20_000
"""Rows that are written together."""
UNREAD = (
    "Make the type in the target what it is in the source (an enum: `ALTER TYPE … ADD VALUE`), or leave the column out"
    " (options[].columns)."
)
_COLUMN = re.compile(r", line \d+, column (.+?)(: |$)", re.DOTALL)


@dataclass(frozen=True)
class Destination:
    table: str
    columns: Sequence[str]
    """Names, quoted."""
    new: bool
    """The transaction has made it."""


def load(connection: Connection, to: Destination, pieces: Iterable[bytes], *, binary: bool) -> int:
    """Returns the bytes of the rows."""
    size, options = 0, ["FORMAT binary" if binary else "FORMAT text"]
    if to.new:  # whoever reads a row first would mark it as committed, and its page as changed
        options.append("FREEZE")
    statement = f"COPY {to.table} ({', '.join(to.columns)}) FROM STDIN ({', '.join(options)})"
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        if binary:
            copy.write(BEGIN)
        for piece in pieces:
            size += len(piece)
            copy.write(piece)
        if binary:
            copy.write(END)
    return size


def values(parts: Iterable[pa.Table], written: Sequence[Encoding] | None) -> Iterator[bytes]:
    """`written`: in binary form, by column; None: as text."""
    for part in parts:
        for at in range(0, part.num_rows, COPY_ROWS):
            some = part.slice(at, COPY_ROWS)
            yield texts.lines(some) if written is None else tuples(some, written)


@contextmanager
def unread_values(columns: Definitions) -> Iterator[None]:
    """A type that the target has under the name of the source's need not be the same."""
    try:
        yield
    except UnfitBinary as error:
        value, kind = privacy.shown(str(error.value)), columns[error.place][1]
        what = f"column {error.column!r} has a value that its type in the target does not take"
        raise Retry(f"{what}: {value} is no {kind}", UNREAD) from None
    except psycopg.DataError as error:
        found = _COLUMN.search(error.diag.context or "")
        if found is None:
            raise
        what = f"column {found[1]!r} has a value that its type in the target does not take"
        raise Retry(f"{what}: {error_text(error)}", UNREAD) from None


@contextmanager
def refused() -> Iterator[None]:
    try:
        yield
    except (psycopg.DataError, psycopg.errors.ProtocolViolation) as error:
        raise WireRefused from error
