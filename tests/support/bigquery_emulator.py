"""bqemulator with ALTER TABLE as BigQuery has it, whose interface tells what it does. Run by a Python of its own
environment, with the arguments of `bqemulator`. What it leaves out is listed in docs/bigquery.md."""

import re
from typing import Any

from bqemulator.catalog.ddl_sync import _introspect_schema
from bqemulator.cli import main
from bqemulator.domain.errors import InvalidQueryError
from bqemulator.scripting.interpreter import ScriptInterpreter
from bqemulator.storage.sql_identifiers import quoted_table_ref
from bqemulator.storage.type_map import bq_to_duckdb

_ALTER = re.compile(r"ALTER TABLE `(\w+)`\.`(\w+)` (.*)", re.DOTALL)
_MADE = re.compile(r"(?:CREATE|CREATE OR REPLACE|DROP) TABLE (?:IF EXISTS )?`(\w+)`\.`(\w+)`")
_DESCRIPTION = re.compile(r"SET OPTIONS\(description='(.*)'\)", re.DOTALL)
_ACTION = re.compile(
    r"DROP COLUMN `(?P<dropped>\w+)`|RENAME COLUMN `(?P<old>\w+)` TO `(?P<new>\w+)`"
    r"|ADD COLUMN `(?P<added>\w+)` (?P<kind>\w+)(?:\([\d,]+\))?"
    r"|ALTER COLUMN `(?P<widened>\w+)` SET DATA TYPE (?P<wider>\w+)"
)
_ESCAPED = re.compile(r"\\(u0000|.)", re.DOTALL)
_MEANT = {"n": "\n", "r": "\r", "u0000": "\0"}
reserved: dict[tuple[str, str], set[str]] = {}
"""Names of dropped columns, by table, which BigQuery keeps for as long as its time travel reaches."""


async def execute(script: Any, sql: str) -> None:
    found, made = _ALTER.fullmatch(sql.strip()), _MADE.match(sql.strip())
    if made is not None:
        reserved.pop((made[1], made[2]), None)
    if found is None:
        await run(script, sql)
    else:
        alter(script._ctx, script._project_id, *found.groups())
        script._final_table = None


def alter(context: Any, project: str, dataset: str, table: str, asked: str) -> None:
    there = context.catalog.get_table(project, dataset, table)
    if there is None:
        raise InvalidQueryError(f"Not found: Table {project}:{dataset}.{table}")
    described = _DESCRIPTION.fullmatch(asked)
    if described is not None:
        text = _ESCAPED.sub(lambda found: _MEANT.get(found[1], found[1]), described[1])
        context.catalog.update_table(there.model_copy(update={"description": text}))
        return
    place, gone = quoted_table_ref(project, dataset, table), reserved.setdefault((dataset, table), set())
    for action in _ACTION.finditer(asked):
        given = action["new"] or action["added"] or ""
        if given.lower() in gone:
            raise InvalidQueryError(f"Column `{given}` was recently deleted in the table `{table}`")
        if action["dropped"]:
            gone.add(action["dropped"].lower())
        context.engine.execute(f"ALTER TABLE {place} {change(action)}")
    schema = _introspect_schema(project, dataset, table, context)
    context.catalog.update_table(there.model_copy(update={"schema_": schema}))


def change(action: re.Match[str]) -> str:
    if action["dropped"]:
        return f'DROP COLUMN "{action["dropped"]}"'
    if action["old"]:
        return f'RENAME COLUMN "{action["old"]}" TO "{action["new"]}"'
    if action["added"]:
        return f'ADD COLUMN "{action["added"]}" {bq_to_duckdb(action["kind"])}'
    return f'ALTER COLUMN "{action["widened"]}" SET DATA TYPE {bq_to_duckdb(action["wider"])}'


run, ScriptInterpreter._exec_sql = ScriptInterpreter._exec_sql, execute
if __name__ == "__main__":
    main()
