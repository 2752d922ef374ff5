"""The script of a batch, and which of its statements a fault is about. Pure. Called by `session`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.targets.bigquery.rest import CHANGED

BEGIN, COMMIT = "BEGIN TRANSACTION", "COMMIT TRANSACTION"
_LINE = re.compile(r" at \[(\d+):\d+\]")
_INTO = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) `(\w+)`\.`(\w+)`")


@dataclass(frozen=True)
class ScriptLine:
    """A statement, which has no end of a line in it."""

    text: str
    table_id: int | None = None
    """The table whose copy it changes; None: it changes what Tailrace keeps about copies."""


def script_of(lines: Sequence[ScriptLine]) -> str:
    """One transaction."""
    return ";\n".join([BEGIN, *(line.text for line in lines), COMMIT])


def table_of_fault(said: str, lines: Sequence[ScriptLine]) -> int | None:
    """The table whose statement fails with these words: that at the place which they tell, or one that changes the copy
    which they name. None: it is not known, or of none."""
    if CHANGED in said:
        return None
    places = [int(found[1]) - 2 for found in _LINE.finditer(said)]
    if places and 0 <= places[-1] < len(lines):
        return lines[places[-1]].table_id
    named = (line.table_id for line in lines if line.table_id is not None and _is_named(line.text, said))
    return next(named, None)


def _is_named(statement: str, said: str) -> bool:
    into = _INTO.match(statement)
    return into is not None and re.search(rf"(?<!\w){into[1]}\.{into[2]}(?!\w)", said) is not None
