"""The report of `tailrace verify` as people read it."""

from collections.abc import Iterator

from tailrace.contract.driver import TableReport, VerificationReport
from tailrace.contract.units import counted

SHOWN = 20
"""Differences of a table that are printed; `--json` has more."""


def lines(found: VerificationReport) -> Iterator[str]:
    for table in found.tables:
        yield from _table(table)
    if found.sample is not None:
        what = f"a sample of {100 * found.sample:g}% (of small tables all rows)"
        yield f"{what}: rows that only the target has were not looked for"
    if found.repairs:
        left = f", {found.repairs_left} under way" if found.repairs_left else ""
        yield f"rows that differ are read again: {counted(found.repairs, 'snapshot', 'snapshots')}{left}"


def _table(table: TableReport) -> Iterator[str]:
    result = table.compared
    rows = counted(result.rows, "row", "rows")
    if table.fault is not None:
        yield f"{table.name}: not verified: {table.fault.name}: {table.fault.message}"
    elif not table.finished:
        yield f"{table.name}: not verified, {rows} compared"
    elif not result.differences:
        yield f"{table.name}: equal, {rows}"
    else:
        counts = f"{result.missing} missing, {result.extra} extra, {result.different} different"
        yield f"{table.name}: NOT EQUAL, {rows}: {counts}"
    if result.undecided:
        undecided = counted(result.undecided, "row that changed meanwhile was", "rows that changed meanwhile were")
        yield f"  {undecided} not decided: verify again"
    for column in result.columns:
        yield f"  column {column.column} differs in {counted(column.rows, 'row', 'rows')}"
    for row in table.differences[:SHOWN]:
        yield f"  {row.kind} {row.key}" + (f": {', '.join(row.columns)}" if row.columns else "")
    if len(table.differences) > SHOWN:
        yield f"  and {result.differences - SHOWN} more (--json names up to a thousand)"
