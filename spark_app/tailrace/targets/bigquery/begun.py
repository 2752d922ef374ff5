"""The note in a copy's record that a job may be rewriting its table: behind the state's text, which batches compare
with the one that they have read. Pure. Called by `session`."""

import re

from tailrace.targets.sql.collected import CollectedChange, OneRow
from tailrace.targets.sql.state import SCHEMA

RECORDS = f"{SCHEMA}.tables"
_NOTE = re.compile(r',"rewrite":"(\w+)"\}$')


def begun_by(stored: str, job_id: str) -> str:
    """The state's text with the note."""
    return f'{stored[:-1]},"rewrite":"{job_id}"}}'


def begun_in(stored: str) -> str | None:
    """The job's id; None: nothing has been begun."""
    found = _NOTE.search(stored)
    return None if found is None else found[1]


def without_begun(stored: str) -> str:
    """The state's text as it was."""
    return _NOTE.sub("}", stored)


def noted(relation: int, before: str, after: str) -> CollectedChange:
    """The change of a record from one text to another."""
    where = "relation = %s AND state = %s"
    one = OneRow(RECORDS, where, [relation, before])
    return CollectedChange(f"UPDATE {RECORDS} SET state = %s WHERE {where}", [after, relation, before], one)
