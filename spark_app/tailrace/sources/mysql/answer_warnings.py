"""Warnings of a server about an answer: what it may have changed in the values on their way to us. Called by `chunks`.

The log holds values as they are stored. A SELECT converts them (text of JSON, of character sets, of expressions), and
where a conversion fails a server sends something else and says so in nothing but a warning: MySQL an empty text for a
JSON value whose text is longer than `max_allowed_packet`. So a chunk is refused for any warning that is not known to
leave the values of columns as they are.
"""

from collections.abc import Sequence

from pymysql.constants import ER

from tailrace.errors import ReadRefused

OF_EXPRESSIONS = frozenset((1292, 1365, 1411, 1441))
"""Truncated in a comparison or a cast, division by zero, no such date: only expressions have these, which stand in the
user's condition and in virtual columns. (Those that each session computes in its own way are left out.)"""
OF_SYNTAX = frozenset((1287, 1681, 3719, 3720, 3778, 4079))
"""Deprecated words, functions, character sets and collations."""
HARMLESS = OF_EXPRESSIONS | OF_SYNTAX
_NAMES = {number: name for name, number in vars(ER).items() if isinstance(number, int)}


def require_harmless(table: str, count: int, codes: Sequence[int]) -> None:
    """`ReadRefused` for a warning that is not known to be harmless. `count`: how many the answer had; `codes`: of those
    that the server still has. It keeps the first `max_error_count`, which needs a right to be set: the others are taken
    to be of the same kinds, and if it keeps none, none is known to be harmless."""
    unknown = sorted(set(codes) - HARMLESS)
    if count == 0 or (codes and not unknown):
        return
    named = ", ".join(f"{code} ({_NAMES[code]})" if code in _NAMES else str(code) for code in unknown) or "unknown"
    raise ReadRefused(
        table,
        f"the server gave {count} warnings while it sent rows of {table}, which may not be as they are stored: {named}",
        "Correct what the server's manual says of this warning (a condition of the request, a value, a setting), or"
        f" leave the column out (spec.options: [{{match: {table}, columns: [<all others>]}}]).",
    )
