"""The report of `tailrace doctor` for the page."""

import threading

from tailrace.contract.console import AssessedColumn, AssessedLine, AssessedTable, ConsoleAssessment
from tailrace.contract.resources import Replicator
from tailrace.driver.asking.assessment import Reading, copied
from tailrace.driver.asking.doctor import examine
from tailrace.errors import Retry
from tailrace.places import Places
from tailrace.sources.findings import ColumnSupport

_ONE = threading.Lock()
"""One look at a time: a source is asked by one connection of the console."""
WAIT_SECONDS = 10.0
"""Seconds that the next one waits for it."""


def assess(replicator: Replicator) -> ConsoleAssessment:
    """Connects to source and target, and changes nothing."""
    if not _ONE.acquire(timeout=WAIT_SECONDS):
        raise Retry("another look at a source is under way, and has not ended yet", "Ask again in a minute.")
    try:
        report = examine(replicator, Places(replicator.spec, "tailrace console"))
    finally:
        _ONE.release()
    lines = [AssessedLine(level=x.level, subject=x.subject, message=x.message, fix=x.fix) for x in report.lines]
    tables = [
        AssessedTable(
            table=table.name,
            copied=copied(report, table),
            key=tuple(c.name for c in table.schema.key_columns),
            rows=table.size.rows,
            bytes=table.size.bytes,
            columns=tuple(map(_column, table.columns)),
        )
        for table in report.tables
    ]
    return ConsoleAssessment(
        ready=report.exit_code == 0,
        lines=tuple(lines),
        tables=tuple(tables),
        seconds=round(Reading.of(report).seconds, 1),
        include=tuple(replicator.spec.tables.include),
    )


def _column(column: ColumnSupport) -> AssessedColumn:
    return AssessedColumn(
        column=column.column,
        source_type=column.source_type,
        becomes=column.becomes,
        support=column.support,
        reason=column.reason,
        suggestion=column.suggestion,
    )
