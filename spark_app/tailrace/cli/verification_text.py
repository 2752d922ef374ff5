"""The report of `tailrace verify` as people read it."""

from collections.abc import Iterator

from tailrace.contract.driver import TableReport, VerificationReport

SHOWN = 20
"""Differences of a table that are printed; `--json` has more."""


def lines(found: VerificationReport) -> Iterator[str]:
    for table in found.tables:
        yield from _table(table)
    if found.sample is not None:
        yield f"a sample of {100 * found.sample:g}%: rows that only the target has were not looked for"
    if found.repairs:
        left = f", {found.repairs_left} under way" if found.repairs_left else ""
        yield f"rows that differ are read again: {found.repairs} snapshots{left}"


def _table(table: TableReport) -> Iterator[str]:
    result = table.compared
    if table.fault is not None:
        yield f"{table.name}: not verified: {table.fault.name}: {table.fault.message}"
    elif not table.finished:
        yield f"{table.name}: not verified, {result.rows} rows compared"
    elif not result.differences:
        yield f"{table.name}: equal, {result.rows} rows"
    else:
        counts = f"{result.missing} missing, {result.extra} extra, {result.different} different"
        yield f"{table.name}: NOT EQUAL, {result.rows} rows: {counts}"
    if result.undecided:
        yield f"  {result.undecided} rows changed meanwhile and were not decided: verify again"
    for column in result.columns:
        yield f"  column {column.column} differs in {column.rows} rows"
    for row in table.differences[:SHOWN]:
        yield f"  {row.kind} {row.key}" + (f": {', '.join(row.columns)}" if row.columns else "")
    if len(table.differences) > SHOWN:
        yield f"  and {result.differences - SHOWN} more (--json names up to a thousand)"
