"""The commits of others that may stand between two of Tailrace's. Pure.

Rewrites that keep the rows (OPTIMIZE, REORG, anything that says `dataChange: false`), VACUUM and changed properties are
fine: positions are located again. Changed rows are not, nor a table that was replaced or put back.
"""

from collections.abc import Sequence
from typing import Any

from tailrace.errors import REPAIR, RESYNC, ForeignChange, TableStop, TargetChanged
from tailrace.targets.lake.delta.state import DOMAIN

_REPLACED = ("RESTORE", "CREATE OR REPLACE", "REPLACE", "CLONE", "CREATE TABLE")
_READ_AGAIN = "Keep other writers out, then {then}; or stop Tailrace, put the table back to version {before} and start."


def is_ours(actions: Sequence[dict[str, Any]]) -> bool:
    """Our commits carry the domain. RESTORE and CLONE may carry it along, so their names rule them out."""
    has_domain = any(action.get("domainMetadata", {}).get("domain") == DOMAIN for action in actions)
    return has_domain and not _operation(actions).startswith(_REPLACED)


def _operation(actions: Sequence[dict[str, Any]]) -> str:
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return str(info.get("operation", "an unnamed operation"))


def assess(table: str, version: int, actions: Sequence[dict[str, Any]]) -> TableStop | None:
    """None: harmless. Otherwise what to stop the table with."""
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    operation = _operation(actions)
    who = info.get("userName") or info.get("engineInfo") or "somebody"
    text = f"{operation} in version {version} by {who}"
    again, compared = (_READ_AGAIN.format(then=then, before=version - 1) for then in (RESYNC, REPAIR))
    if operation.startswith(_REPLACED):
        return TargetChanged(table, f"the table was put back or replaced: {text}", again)
    if any(action.get(kind, {}).get("dataChange") for action in actions for kind in ("add", "remove", "cdc")):
        return ForeignChange(table, f"somebody else changed its rows: {text}", compared)
    return None
