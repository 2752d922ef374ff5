"""Policies that people have put on a copy: through them, what writes it again reads fewer rows or other values, and the
table that takes its place has none of them. Pure. Called by `session`."""

import re

from snowflake.connector import errors

from tailrace.errors import TargetRefused
from tailrace.targets.snowflake.tables import literal

FIX = (
    "Take the table away from its readers, drop the policies, wait until the change has passed, and create the policies"
    " again."
)
UNSUPPORTED = "0A"
"""Class of SQLSTATE of what the account's edition does not have."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_POLICY = re.compile(r"\bpolic(?:y|ies)\b", re.IGNORECASE)


def question(database: str, table: str) -> str:
    """The query for the names of a table's policies. Both are quoted; the table's name is complete."""
    function = f"{database}.INFORMATION_SCHEMA.POLICY_REFERENCES"
    return (
        f"SELECT POLICY_NAME FROM TABLE({function}(REF_ENTITY_NAME => {literal(table)}, REF_ENTITY_DOMAIN => 'TABLE'))"
    )


def is_unsupported(error: BaseException | None) -> bool:
    return isinstance(error, errors.Error) and (error.sqlstate or "")[:2] == UNSUPPORTED


def is_about_policies(error: BaseException | None) -> bool:
    """The service refuses a statement for a policy; a column or a table of this name is none."""
    return isinstance(error, errors.Error) and bool(_POLICY.search(_QUOTED.sub("", str(error.raw_msg or error))))


def refused(table: str, why: str) -> TargetRefused:
    """`table`: with its place."""
    return TargetRefused(f"{table} {why}", FIX)
