"""The report of `tailrace doctor` on the tables: one line each, and the columns that are not copied exactly.

Takes the report of `driver.asking.doctor`; `document` is its form for programs, described in docs/operations.md.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tailrace.contract.units import size_text
from tailrace.driver.asking.assessment import BASIS, Reading, copied
from tailrace.driver.asking.doctor import Report
from tailrace.driver.telling import display
from tailrace.logs import visible
from tailrace.sources.findings import ColumnSupport, TableSupport

_NAMED = 5
"""Columns in a line."""


def document(report: Report) -> dict[str, Any]:
    reading = Reading.of(report)
    return {
        "ready": report.exit_code == 0,
        "lines": [
            {"level": x.level, "subject": x.subject, "message": x.message, "fix": x.fix, "exitCode": x.exit_code}
            for x in report.lines
        ],
        "tables": [
            {
                "table": table.name,
                "copied": copied(report, table),
                "key": [c.name for c in table.schema.key_columns],
                "rows": table.size.rows,
                "bytes": table.size.bytes,
                "columns": [_column(c) for c in table.columns],
            }
            for table in report.tables
        ],
        "snapshot": {
            "tables": reading.tables,
            "rows": reading.rows,
            "bytes": reading.bytes,
            "seconds": round(reading.seconds, 1),
            "basis": BASIS,
        },
    }


def _column(column: ColumnSupport) -> dict[str, str | None]:
    return {
        "column": column.column,
        "sourceType": column.source_type,
        "becomes": column.becomes,
        "support": column.support,
        "reason": column.reason,
        "suggestion": column.suggestion,
    }


def lines(report: Report) -> Iterator[str]:
    if not report.tables:
        return
    heads = ("table", "rows", "size", "key", "columns")
    cells = [heads, *(_cells(table, copied(report, table)) for table in report.tables)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    yield ""
    yield _row(cells[0], widths)
    for table, row in zip(report.tables, cells[1:], strict=True):
        yield _row(row, widths)
        yield from _columns(table.columns)
    yield ""
    for reason, suggestion in _suggestions(report.tables):
        yield f"{visible(reason)}\n     fix: {visible(suggestion)}"
    yield from _reading(Reading.of(report))


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Numbers to the right; the last cell has no blanks behind it."""
    name, rows, size, key, columns = cells
    return f"{name:{widths[0]}}  {rows:>{widths[1]}}  {size:>{widths[2]}}  {key:{widths[3]}}  {columns}"


def _cells(table: TableSupport, is_copied: bool) -> tuple[str, str, str, str, str]:
    rows = "?" if table.size.rows is None else f"{table.size.rows:,}"
    key = ", ".join(c.name for c in table.schema.key_columns) or ("whole rows" if table.schema.keyless else "none")
    some = sum(column.becomes is not None for column in table.columns)
    what = f"{some} of {len(table.columns)}" if is_copied else "not copied: see its line above"
    return (
        visible(table.name),
        rows,
        "?" if table.size.bytes is None else size_text(table.size.bytes),
        visible(key),
        what,
    )


def _columns(columns: Iterable[ColumnSupport]) -> Iterator[str]:
    """Those of a kind together, without what to do about it."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        if column.support != "YES":
            kind = f" ({column.source_type})" if column.source_type else ""
            kinds.setdefault((column.support, column.reason), []).append(f"{column.column}{kind}")
    for (support, reason), names in kinds.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield visible(f"    {support:7} {', '.join(names[:_NAMED])}{more}: {reason}")


def _suggestions(tables: Iterable[TableSupport]) -> Iterable[tuple[str, str]]:
    """Each once, in the order of the tables."""
    found = ((c.reason, c.suggestion) for table in tables for c in table.columns if c.suggestion)
    return dict.fromkeys(found)


def _reading(reading: Reading) -> Iterator[str]:
    if not reading.tables:
        return
    tables = "1 table" if reading.tables == 1 else f"{reading.tables} tables"
    # What has no statistics counts as nothing.
    about, rows = ("at least", f"at least {reading.rows:,}") if reading.unknown else ("about", f"{reading.rows:,}")
    size, time = size_text(reading.bytes), display.seconds(reading.seconds)
    yield f"first snapshot: {about} {time} for {tables}, {rows} rows, {size}"
    yield f"     estimate: by the source's statistics, at {BASIS},"
    yield "     as measured with 2 cores on the source's machine (docs/performance.md), without Spark's start; network"
    yield "     and load make it longer, and so do compressed values: they count as they are stored"
    if reading.unknown:
        have = "table has" if reading.unknown == 1 else "tables have"
        yield f"     {reading.unknown} {have} no statistics yet: run ANALYZE for better numbers"
