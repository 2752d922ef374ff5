"""The findings of an examination of a source, before anything is created: the checks that a start must pass, and how
well each table is copied. Each source makes them, `tailrace doctor` shows them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import SourceRefused

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at before anything is made."""

    name: str
    level: Level
    message: str
    fix: str = ""
    table: str | None = None
    """Set when it concerns one table only: the others can continue."""


@dataclass(frozen=True)
class ColumnSupport:
    """The exactness with which a column is copied."""

    column: str
    source_type: str | None
    """None: a column that is not copied, of which discovery keeps only the name."""
    becomes: str | None
    """Logical type in the log and the target; None: it is not copied."""
    support: Literal["YES", "PARTIAL", "NO"]
    """PARTIAL: as text or bytes, or without the values that its type in the target cannot hold."""
    reason: str = ""
    suggestion: str = ""
    """Does not name the column: what is to be done is the same for many."""


@dataclass(frozen=True)
class TableSize:
    """The size of a table as the source's catalog estimates it."""

    rows: int | None = None
    """None: the source has no estimate yet."""
    bytes: int | None = None
    """Without indexes that are stored apart."""


@dataclass(frozen=True)
class TableSupport:
    """A table that the patterns select, and how well it is copied."""

    schema: TableSchema
    """The schema of the columns that are copied."""
    columns: tuple[ColumnSupport, ...]
    size: TableSize = TableSize()
    stopped: bool = False
    """It cannot be captured as it is; the findings say why. The target may still have something against others."""

    @property
    def name(self) -> str:
        """`schema.table`, as users write it."""
        return self.schema.name


@dataclass(frozen=True)
class Examination:
    findings: tuple[Finding, ...]
    """The findings in the order in which a reader should see to them."""
    tables: tuple[TableSupport, ...]
    """Those that the patterns select."""
    of_other_case: tuple[str, ...] = ()
    """Sentences about patterns that match no table because their case is not the catalog's."""


@dataclass(frozen=True)
class Writers:
    """The answer to the question of a cutover, whether the source is quiet."""

    obstacles: tuple[tuple[str, str], ...]
    """Reasons to expect more changes, each with its fix; empty: there will be none."""
    since: str | None = None
    """The moment at which the source was first seen read-only, in its own form; None: it is not."""


def refuse(findings: Iterable[Finding]) -> None:
    """`SourceRefused` for the failures that concern the whole source."""
    failed = [f for f in findings if f.level == "fail" and f.table is None]
    if failed:
        raise SourceRefused("; ".join(f.message for f in failed), " ".join(f.fix for f in failed if f.fix))
