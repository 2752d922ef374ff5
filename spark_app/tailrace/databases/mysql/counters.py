"""AUTO_INCREMENT of MySQL's and MariaDB's tables. Called for sources and for their copies."""

from collections.abc import Callable, Collection
from typing import Any

from tailrace.databases.counters import Counter
from tailrace.databases.extras import TableName
from tailrace.databases.mysql.connect import Server

_NUMBERED = """
SELECT t.table_schema, t.table_name, c.column_name, COALESCE(t.auto_increment, 1)
  FROM information_schema.tables t JOIN information_schema.columns c USING (table_schema, table_name)
 WHERE c.extra LIKE '%auto_increment%' AND c.extra NOT LIKE '%INVISIBLE%' AND t.table_schema NOT IN ('mysql', 'sys')
"""


def counters(
    rows: Callable[[str], list[tuple[Any, ...]]], server: Server, tables: Collection[TableName]
) -> list[Counter]:
    if server.product == "mysql":
        rows("SET SESSION information_schema_stats_expiry = 0")  # else the numbers are those of a day ago
    found = []
    for schema, table, column, next_number in rows(_NUMBERED):
        if (name := (str(schema), str(table))) in tables:
            found.append(Counter(name, (name, str(column)), int(next_number)))
    return sorted(found, key=lambda counter: counter.name)
