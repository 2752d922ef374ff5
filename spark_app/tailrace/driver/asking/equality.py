"""The outcome of a verification for those who need equal tables: `tailrace verify`, and cutovers."""

from tailrace.contract.driver import VerificationReport
from tailrace.errors import TailraceError


class CopyDiffers(TailraceError):
    """Rows of a copy are not those of its source."""

    exit_code = 3


class Unfinished(TailraceError):
    """A verification has no result for some table, or a cut lacks one."""


def require_equal(found: VerificationReport, fix: str) -> None:
    """Raises for what a verification found, or could not find. `fix`: for rows that differ."""
    faults = [table for table in found.tables if table.fault is not None]
    if found.state != "Completed" or faults:
        what = ", ".join(table.name for table in faults) or found.state.lower()
        raise Unfinished(f"not verified: {what}", faults[0].fault.fix if faults and faults[0].fault else "")
    wrong = [table.name for table in found.tables if table.compared.differences]
    if wrong:
        raise CopyDiffers(f"not equal to the source: {', '.join(wrong)}", fix)
