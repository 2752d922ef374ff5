"""fakesnow's server, with what the newest client and our tests need of Snowflake and it lacks. Run by a Python of its
own environment: `snowflake_emulator.py PORT`. What it leaves out is listed in docs/snowflake.md."""

import importlib
import json
import math
import re
import sys
import threading
from contextlib import suppress
from time import monotonic
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import uvicorn
from fakesnow import cursor as cursors
from fakesnow import transforms
from fakesnow.cursor import FakeSnowflakeCursor
from fakesnow.dialect import parse_one
from fakesnow.transforms import show
from snowflake.connector import errors
from sqlglot import exp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

SHOWN = "_fs_global._fs_information_schema"
EXTRA = f"{SHOWN}._fs_tables_ext"
show.SQL_CREATE_VIEW_SHOW_TABLES = (
    show.SQL_CREATE_VIEW_SHOW_TABLES.replace(
        "    '' as comment",
        f"    coalesce((select comment from {EXTRA} e where e.ext_table_catalog = table_catalog"
        " and e.ext_table_schema = table_schema and e.ext_table_name = table_name), '') as comment",
    )
    .replace("    0 as rows,", "    null::int as rows,")
    .replace("'SYSADMIN' as", "'WRITER' as")
)
server: Any = importlib.import_module("fakesnow.server")  # the package has a function of this name
ABANDONED = 3.0
"""Seconds without a statement after which an open transaction ends that may hold another one up: five minutes there."""
LOCKED = 2.0
"""Seconds that a statement waits for the transaction of another session: a minute there, as Tailrace asks for."""
turn = threading.Condition()
"""Held to look at `open_since` and to change it."""
open_since: dict[Any, float] = {}
"""The end of the last statement of each connection with a transaction; infinite while one runs."""
policies: dict[str, set[str]] = {}
_POLICY = re.compile(r"ALTER TABLE (\S+) (?:ADD ROW ACCESS POLICY (\w+) ON .*|DROP ALL ROW ACCESS POLICIES)")
_POLICIES = re.compile(r"SELECT POLICY_NAME FROM TABLE\(\S+POLICY_REFERENCES\(REF_ENTITY_NAME => '(.*)', REF_ENTITY.*")
LOGIN = {"masterToken": "m", "validityInSeconds": 86400, "masterValidityInSeconds": 86400, "sessionId": 1}


async def login(request: Request) -> JSONResponse:
    """The client wants a token by which it gets others."""
    answer = json.loads((await server.login_request(request)).body)
    answer["data"] |= LOGIN
    return JSONResponse(answer)


def staged(request: Request, statement: Any, data: dict[str, Any]) -> Any:
    """Where the client uploads a file to."""
    data["overwrite"] = True
    return whole_stage(request, statement, data) | {"region": "", "endPoint": ""}


def as_snowflake(table: pa.Table, rowtype: Any) -> pa.Table:
    """A NULL instant is a NULL of the struct, not one within it."""
    made = to_sf(table, rowtype)
    columns = []
    for column, source in zip(made.columns, table.columns, strict=True):
        if pa.types.is_timestamp(source.type):
            whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
            nulls = source.combine_chunks().is_null()
            fields = [pa.field(field.name, field.type) for field in whole.type]
            values = [pc.fill_null(whole.field(at), 0) for at in range(len(fields))]
            columns.append(pa.StructArray.from_arrays(values, fields=fields, mask=nulls))
        else:
            columns.append(column)
    schema = pa.schema([field.with_type(one.type) for field, one in zip(made.schema, columns, strict=True)])
    return pa.Table.from_arrays(columns, schema=schema)


def execute(cursor: FakeSnowflakeCursor, statement: Any, params: Any = None) -> None:
    """One transaction is open at a time, or one statement that would lock rows by itself."""
    connection = cursor._conn
    begins, ends = isinstance(statement, exp.Transaction), isinstance(statement, exp.Commit | exp.Rollback)
    with turn:
        inside = connection in open_since
        locks = inside or begins or isinstance(statement, exp.Update | exp.Delete)
        if locks and not inside:
            await_turn()
        if locks:
            open_since[connection] = math.inf
    try:
        described(cursor, statement, params)
    finally:
        with turn:
            if begins or (inside and not ends):
                open_since[connection] = monotonic()
            elif locks:
                open_since.pop(connection, None)
                turn.notify_all()


def await_turn() -> None:
    """There, a transaction waits at the first row that another one has locked, and sees what that one has committed:
    Tailrace's begin with the same row. Here, it would see only what was committed when it began, and fail there."""
    end = monotonic() + LOCKED
    while end_abandoned():
        if monotonic() > end:
            told = "Statement has locked table 'FENCE' in transaction 1 and this lock has not yet been released."
            raise errors.ProgrammingError(msg=told, errno=625, sqlstate="57014")
        turn.wait(0.05)


def end_abandoned() -> bool:
    """End transactions of dead clients, and their sessions: what a client that lives would send next must not be
    committed by itself. True: others are open."""
    tokens = {connection: token for token, connection in server.sessions.items()}
    for connection, since in list(open_since.items()):
        if monotonic() - since > ABANDONED or (connection not in tokens and since < math.inf):
            server.sessions.pop(tokens.get(connection), None)
            open_since.pop(connection)
            with suppress(duckdb.TransactionException):  # it has none: its BEGIN failed
                connection._duck_conn.rollback()
    return bool(open_since)


def described(cursor: FakeSnowflakeCursor, statement: Any, params: Any) -> None:
    """A comment goes with its table."""
    if isinstance(statement, exp.Create | exp.Drop) and statement.args.get("kind") == "TABLE":
        table = statement.find(exp.Table)
        assert table is not None
        schema = table.db or cursor._conn.schema
        forget = f"DELETE FROM {EXTRA} WHERE ext_table_schema = ? AND ext_table_name = ?"
        cursor._duck_conn.execute(forget, [schema, table.name])
    if isinstance(statement, exp.Alter) and isinstance(action := statement.args["actions"][0], exp.SwapTable):
        return swap(cursor, statement.this, action.this)
    run(cursor, statement, params)
    if isinstance(statement, exp.Alter) and isinstance(action := statement.args["actions"][0], exp.AlterRename):
        named(cursor, statement.this.db, statement.this.name, action.this.name)


def named(cursor: FakeSnowflakeCursor, schema: str, old: str, new: str) -> None:
    change = f"UPDATE {EXTRA} SET ext_table_name = ? WHERE ext_table_schema = ? AND ext_table_name = ?"
    cursor._duck_conn.execute(change, [new, schema, old])


def swap(cursor: FakeSnowflakeCursor, one: exp.Table, other: exp.Table) -> None:
    """Tables of one schema change their names, at once."""
    steps = ((one.name, "_swapped"), (other.name, one.name), ("_swapped", other.name))
    cursor._duck_conn.execute("BEGIN")
    try:
        for old, new in steps:
            cursor._duck_conn.execute(f"ALTER TABLE {quoted(one.db)}.{quoted(old)} RENAME TO {quoted(new)}")
    except BaseException:
        cursor._duck_conn.execute("ROLLBACK")
        raise
    cursor._duck_conn.execute("COMMIT")
    for old, new in steps:
        named(cursor, one.db, old, new)
    run(cursor, parse_one("SELECT 'Statement executed successfully.' AS status"), None)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def integer_precision(expression: Any) -> Any:
    """NUMBER(38,0) has 38 digits; that without any is for the client's integers."""
    is_sized = isinstance(expression, exp.DataType) and bool(expression.expressions)
    return expression if is_sized and expression.this == exp.DataType.Type.DECIMAL else to_bigint(expression)


def parsed(text: str) -> Any:
    """A clone has no grants to copy; row access policies are only kept, by the names of tables."""
    changed, asked = _POLICY.fullmatch(text), _POLICIES.fullmatch(text)
    if changed is not None:
        policies[changed[1]] = {changed[2]} if changed[2] else set()
        return parse_one("SELECT 'Statement executed successfully.' AS status")
    if asked is not None:
        found = " UNION ALL ".join(f"SELECT '{name}' AS policy_name" for name in policies.get(asked[1], ()))
        return parse_one(found or "SELECT '' AS policy_name WHERE FALSE")
    return parse_one(text.removesuffix(" COPY GRANTS") if " CLONE " in text else text)


to_bigint, transforms.integer_precision = transforms.integer_precision, integer_precision
to_sf, whole_stage, run = server.to_sf, server.gcs_stage_info, FakeSnowflakeCursor._execute
cursors.parse_one = server.parse_one = parsed
server.to_sf, server.gcs_stage_info, FakeSnowflakeCursor._execute = as_snowflake, staged, execute
if __name__ == "__main__":
    routes = [
        Route(route.path, login, methods=["POST"]) if route.path == "/session/v1/login-request" else route
        for route in server.routes
    ]
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
