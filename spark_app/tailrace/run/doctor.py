"""`tailrace doctor`: what stands in the way of a start, without changing source or target.

Looks at the source through its preflight and at storage and target by writing, reading and removing one small file.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tailrace.capture.names import Names
from tailrace.changelog.journal import read_origin
from tailrace.contract.resources import Replicator
from tailrace.contract.resources import Storage as StorageConfig
from tailrace.errors import Retry, Stop, TailraceError
from tailrace.run import places
from tailrace.sources.patterns import idle
from tailrace.sources.postgresql import preflight
from tailrace.sources.postgresql.catalog import discover
from tailrace.sources.postgresql.connect import PgConfig, connect
from tailrace.sources.postgresql.facts import observe
from tailrace.sources.postgresql.preflight import ColumnSupport
from tailrace.storage import Storage

REFUSED = 10
"""Exit code for whatever a start, or a table, would be refused with."""


@dataclass(frozen=True)
class Line:
    """One thing that was looked at."""

    level: Literal["ok", "warn", "fail"]
    subject: str
    message: str
    fix: str = ""
    exit_code: int = 0

    def __str__(self) -> str:
        text = f"{self.level:4} {self.subject}: {self.message}"
        return text + (f"\n     fix: {self.fix}" if self.fix else "")


@dataclass(frozen=True)
class Report:
    lines: tuple[Line, ...]
    columns: tuple[ColumnSupport, ...] = ()

    @property
    def exit_code(self) -> int:
        """Never 0 beside a line that says `fail`: a table that cannot be copied is no readiness either."""
        return max((line.exit_code or REFUSED for line in self.lines if line.level == "fail"), default=0)


def examine(replicator: Replicator, secrets: Path | None) -> Report:
    """Source first, then storage and target."""
    lines: list[Line] = []
    columns: Sequence[ColumnSupport] = ()
    try:
        found, columns = _source(replicator, secrets)
        lines += found
    except (Stop, Retry) as error:
        lines.append(_failure("source", error))
    try:
        places.require_apart(replicator.spec)
    except TailraceError as error:
        lines.append(_failure("places", error))
    for subject, config in (("storage", replicator.spec.storage), ("target", replicator.spec.target)):
        lines += _place(subject, config)
    return Report(tuple(lines), tuple(columns))


def _source(replicator: Replicator, secrets: Path | None) -> tuple[list[Line], list[ColumnSupport]]:
    spec = replicator.spec
    with connect(PgConfig.of(spec.source, "tailrace doctor", secrets)) as connection:
        tables = discover(connection, spec.tables, spec.options)
        facts = observe(connection, spec.source, _names(replicator).made, tables)
    lines = [Line(f.level, f.table or f.name, f.message, f.fix) for f in preflight.check(facts)]
    if not tables:
        asked = ", ".join(spec.tables.include)
        lines.append(Line("fail", "tables", f"no table matches {asked}", "correct tables.include"))
    names = [(table.schema_name, table.table_name) for table in tables]
    fix = "ignore this if the tables will be created later"
    lines += [Line("warn", "patterns", text, fix) for text in idle(spec.tables, spec.options, names) if tables]
    return lines, [column for table in tables for column in preflight.columns(table)]


def _names(replicator: Replicator) -> Names:
    """As the change log's origin has them; a storage that cannot be read is told further down."""
    try:
        return Names.of_log(replicator, read_origin(Storage.open(replicator.spec.storage, os.environ)))
    except TailraceError:
        return Names.of(replicator)


def _place(subject: str, config: StorageConfig) -> Iterator[Line]:
    try:
        same = places.probe(config)
    except TailraceError as error:
        yield _failure(subject, error)
        return
    if same:
        yield Line("ok", subject, f"{config.location} can be written and read")
    else:
        yield Line("fail", subject, f"{config.location} gives back other bytes than were written")


def _failure(subject: str, error: TailraceError) -> Line:
    return Line("fail", subject, f"{error.name}: {error.message}", error.fix, error.exit_code)
