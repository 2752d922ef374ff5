"""Policies that people have put on a copy: through them, what writes it again reads fewer rows or other values, and the
table that takes its place has none of them. Called by `session`."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from snowflake.connector import errors

from tailrace.errors import TailraceError, TargetRefused
from tailrace.targets.snowflake.tables import SnowflakeCopy, literal

FIX = (
    "Take the table away from its readers, drop the policies, wait until the change has passed, and create the policies"
    " again."
)
UNSUPPORTED = "0A"
"""Class of SQLSTATE of what the account's edition does not have."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_POLICY = re.compile(r"\bpolic(?:y|ies)\b", re.IGNORECASE)


def found(ask: Callable[[str], Sequence[tuple[object, ...]]], database: str, table: str) -> list[str]:
    """The names of a table's policies. Both are quoted; the table's name is complete."""
    function = f"{database}.INFORMATION_SCHEMA.POLICY_REFERENCES"
    told = f"REF_ENTITY_NAME => {literal(table)}, REF_ENTITY_DOMAIN => 'TABLE'"
    try:
        names = ask(f"SELECT POLICY_NAME FROM TABLE({function}({told}))")
    except TailraceError as error:
        if _is_unsupported(error.__cause__):
            return []
        raise
    return sorted({str(name) for (name,) in names})


def _is_unsupported(error: BaseException | None) -> bool:
    return isinstance(error, errors.Error) and (error.sqlstate or "")[:2] == UNSUPPORTED


def is_about_policies(error: BaseException | None) -> bool:
    """The service refuses a statement for a policy; a column or a table of this name is none."""
    return isinstance(error, errors.Error) and bool(_POLICY.search(_QUOTED.sub("", str(error.raw_msg or error))))


def owned_by_others(tables: Iterable[Mapping[str, Any]], role: str) -> str | None:
    """A text about a copy among these answers of SHOW TABLES that another role owns; None: there is none."""
    for table in tables:
        owner = str(table.get("owner") or role)
        if owner != role and SnowflakeCopy.of_comment(str(table["comment"] or "")) is not None:
            return f"table {table['name']} belongs to role {owner}, not to {role}"
    return None


def right_of(role: str) -> str:
    """The fix where a role does not see them."""
    return (
        f"Let role {role} own the copies and Tailrace's own tables, or run `GRANT APPLY ROW ACCESS POLICY, APPLY"
        f" MASKING POLICY ON ACCOUNT TO ROLE {role}`."
    )


def as_owner(role: str) -> str:
    """The fix where another role owns a copy. Rights that this one has from others are in no list of its own."""
    return (
        f"Let role {role} own the copies. If it has APPLY ROW ACCESS POLICY and APPLY MASKING POLICY on the account,"
        " all policies are listed, and you can ignore this, which is shown all the same."
    )


def refused(table: str, why: str) -> TargetRefused:
    """`table`: with its place."""
    return TargetRefused(f"{table} {why}", FIX)
