"""MERGE tables: rows that are written through one are in the log under its name, and change the MyISAM table that has
them. Only its definition names these. Called by the catalog."""

from typing import Any

import pymysql

from tailrace.databases.mysql import faults
from tailrace.databases.mysql.connect import Connection, execute
from tailrace.sources.mysql.model import quoted

Row = dict[str, Any]
_ENGINE = "MRG_MYISAM"
_UNUSABLE = 1168
"""Error: a part is missing, or is another table by now."""


def note_merges(connection: Connection, found: list[Row], everything: list[Row]) -> None:
    """Each of `found` that is part of a MERGE table gets its name, as `merged`. Rows of information_schema.tables."""
    merges = [r for r in everything if (r["engine"] or "").upper() == _ENGINE]
    if not merges or all(r["engine"] != "MyISAM" for r in found):
        return
    for merge in merges:
        parts = _parts(connection, merge)
        for row in found:
            if _is_part(row, merge, parts):
                row["merged"] = f"{merge['table_schema']}.{merge['table_name']}"


def _parts(connection: Connection, merge: Row) -> str:
    """The end of its definition, with their names; empty: it cannot be used as it is."""
    name = f"{quoted(merge['table_schema'])}.{quoted(merge['table_name'])}"
    try:
        return str(execute(connection, f"SHOW CREATE TABLE {name}")[0][1]).rpartition("UNION=(")[2]
    except pymysql.MySQLError as error:
        if faults.number(error) != _UNUSABLE and faults.kind(error) not in ("gone", "right"):
            raise
        return ""


def _is_part(row: Row, merge: Row, parts: str) -> bool:
    """One of another database is named with it."""
    schema = row["table_schema"]
    return quoted(row["table_name"]) in parts and (schema == merge["table_schema"] or quoted(schema) in parts)
