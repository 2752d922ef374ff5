"""The report on a Replicator's tables before it starts: tables that are copied, columns that are not exact, and the
amount that the first snapshot has to read. Made from `asking.doctor`'s report; shown by `tailrace doctor`, and in
Kubernetes by the driver at its first start."""

import logging
from dataclasses import dataclass
from pathlib import Path

from tailrace.changelog import first_start
from tailrace.changelog.journal import JournalReader
from tailrace.contract.resources import Replicator
from tailrace.contract.status import Assessment
from tailrace.driver.asking.doctor import Report, examine
from tailrace.errors import TailraceError, error_line, privacy
from tailrace.places import Places
from tailrace.sources.findings import TableSupport

log = logging.getLogger(__name__)

BEGIN = 3.0
"""Seconds until the first chunk is read, once Spark runs."""
EACH = 0.25
"""Seconds for a table, however small: "Many tables" in docs/performance.md."""
ROWS = 300_000
"""Rows in a second, however narrow: read, written and committed."""
BYTES = 64 << 20
"""Bytes in a second, on top of that. All four against measured snapshots: "First snapshots" in docs/performance.md."""
BASIS = f"{BEGIN:.0f} s, {EACH} s for each table, and {ROWS:,} rows and {BYTES >> 20} MiB a second"
NAMED = 5
"""Tables that are not copied, with the reason; `tailrace doctor` names all."""


@dataclass(frozen=True)
class Reading:
    """The amount that a snapshot of all tables that can be copied has to read: estimates."""

    tables: int
    unknown: int
    """Tables of which the source has no number of rows, or no size."""
    rows: int
    bytes: int

    @property
    def seconds(self) -> float:
        """Seconds from the plan to the commit; 0: there is nothing to read."""
        return BEGIN + self.tables * EACH + self.rows / ROWS + self.bytes / BYTES if self.tables else 0.0

    @staticmethod
    def of(report: Report) -> "Reading":
        sizes = [table.size for table in report.tables if copied(report, table)]
        unknown = sum(size.rows is None or size.bytes is None for size in sizes)
        return Reading(len(sizes), unknown, sum(s.rows or 0 for s in sizes), sum(s.bytes or 0 for s in sizes))


def copied(report: Report, table: TableSupport) -> bool:
    return not table.stopped and table.name not in report.failed


def before_first_start(replicator: Replicator, secrets: Path | None, now: float) -> Assessment | None:
    """Creates nothing in the source. None: the Replicator has started before, or cannot be assessed, which capture will
    report."""
    try:
        places = Places(replicator.spec, "tailrace doctor", secrets)
        storage = places.storage
        if JournalReader.open(storage).state.origin is not None or first_start.read(storage) is not None:
            return None
        found = summary(examine(replicator, places), now)
    except TailraceError as error:
        log.info("the tables were not assessed: %s", error)
        return None
    except Exception as error:  # whatever it is, it must not keep a Replicator from its first start
        log.warning("the tables were not assessed: %s", privacy.error_text(error))
        return None
    log.info("%d of %d tables can be copied", found.copied, found.tables)
    return found if found.tables else None


def summary(report: Report, now: float) -> Assessment:
    reading = Reading.of(report)
    names = {table.name for table in report.tables if not copied(report, table)}
    refused = (line for line in report.lines if line.level == "fail" and line.subject in names)
    why = [error_line(line.subject, line.message, line.fix) for line in refused]
    columns = (column for table in report.tables if table.name not in names for column in table.columns)
    return Assessment(
        at=now,
        tables=len(report.tables),
        copied=reading.tables,
        refused=tuple(why[:NAMED]),
        inexact_columns=sum(column.support != "YES" for column in columns),
        rows=reading.rows,
        seconds=round(reading.seconds, 1),
    )
