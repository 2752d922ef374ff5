"""What an examination of a source found: whether a start may go on with it."""

from collections.abc import Iterable

from tailrace.errors import SourceRefused
from tailrace.sources.api import Finding


def refuse(findings: Iterable[Finding]) -> None:
    """`SourceRefused` for the failures that concern the whole source."""
    failed = [f for f in findings if f.level == "fail" and f.table is None]
    if failed:
        raise SourceRefused("; ".join(f.message for f in failed), " ".join(f.fix for f in failed if f.fix))
