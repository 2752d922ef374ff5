"""Rows that PostgreSQL holds and cannot send: the text of a value, or of the whole row, would pass 1 GB.

The same for the log, whose every later change is then out of reach, and for a chunk. It means nothing else: the
server's other limits, and memory sizes that only damaged data asks for, stay what they are.
"""

import re

PROGRAM_LIMIT_EXCEEDED = "54000"
"""SQLSTATE of a message that grows beyond 1 GB. The server's words for it are translated."""
_ALLOCATION = re.compile(r"invalid memory alloc request size (\d+)")
"""A single value, SQLSTATE XX000: an internal error, whose words are never translated."""
_MOST = 1 << 33
"""Bytes of text that one value may ask for, with room to spare: damaged data asks for far more."""
LIMIT = "its text would be longer than the 1 GB that PostgreSQL can send"
SHORTEN = "Shorten the value in the source, or take its table out of tables.include."


def too_large(sqlstate: str, message: str) -> bool:
    """True for an error by which the server ended a log stream, or a COPY, because a value was too large."""
    if sqlstate == PROGRAM_LIMIT_EXCEEDED:
        return True
    found = _ALLOCATION.search(message)
    return found is not None and int(found[1]) < _MOST
