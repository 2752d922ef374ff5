"""Deleted rows that a copy with `options[].history: SoftDelete` cannot keep, told by table and number.

The source's log lacked a value of such a row, so it was withheld from the copy (a hole), and it was gone before it
could be read again: neither the log nor the copy has its values. Called by the engines of lakes and databases while
they build a batch, so a batch that is repeated tells of it again.
"""

import logging

from tailrace.changelog.records.terms import TableSchema

log = logging.getLogger(__name__)


def warn_of_lost_rows(schema: TableSchema, count: int) -> None:
    if count:
        log.warning(
            "deleted rows that are not kept: %d; the source's log lacked values of them, and they were gone before"
            " they could be read",
            count,
            extra={"table": schema.name},
        )
