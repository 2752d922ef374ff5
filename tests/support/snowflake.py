"""Snowflake as a target under test: an emulator on loopback, in memory, or an account, where it is asked for."""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import servers
from demo.ports import free_port
from support.conforming import Rows, log_of, no_spark
from support.process import Program, of_other_environment
from tailrace import targets
from tailrace.changelog.records.terms import TableSchema
from tailrace.changelog.types import arrow_type
from tailrace.contract.resources import TargetSpec
from tailrace.targets.api import Runtime, Target, Units
from tailrace.targets.snowflake.connect import SnowflakeConfig, connect
from tailrace.targets.snowflake.session import OWN, SnowflakeSession

LIVE = "TAILRACE_LIVE_SNOWFLAKE"
"""Environment variable: `account:user:database:schema:warehouse:role:path` of an account and a private key. Schemas
whose names begin like this one are made and dropped."""
EMULATOR = Path(__file__).parent / "snowflake_emulator.py"


@cache
def private_key(passphrase: bytes | None = None) -> bytes:
    """A key in PEM; making one takes a while."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    hidden = serialization.NoEncryption() if passphrase is None else serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)


@dataclass
class SnowflakeService:
    key: Path
    account: str = "emulated"
    user: str = "tailrace"
    database: str = "copies"
    prefix: str = "s"
    """The beginning of the names of schemas."""
    warehouse: str = "small"
    role: str = "writer"
    endpoint: str | None = None
    made: list[str] = field(default_factory=list)

    def new_schema(self) -> str:
        """The name of one that is not there."""
        self.made.append(f"{self.prefix}{secrets.token_hex(6)}".upper())
        return self.made[-1]

    def spec(self, schema: str, **more: object) -> TargetSpec:
        names = {name: getattr(self, name) for name in ("account", "user", "database", "warehouse", "role", "endpoint")}
        block = {**names, "schema": schema, **more}
        credentials = {"file": str(self.key)}
        return TargetSpec.model_validate({"type": "snowflake", "snowflake": block, "credentials": credentials})

    def target(self, schema: str, **more: object) -> Target:
        return targets.open(self.spec(schema, **more))

    def config(self, schema: str = "") -> SnowflakeConfig:
        return SnowflakeConfig(
            account=self.account,
            user=self.user,
            database=self.database.upper(),
            schema=schema,
            warehouse=self.warehouse.upper(),
            role=self.role.upper(),
            endpoint=self.endpoint,
            key=str(self.key),
            passphrase=f"{self.key}.passphrase",
        )

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        return self.named(statement)[1]

    def named(self, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The names of the columns, and the rows."""
        with closing(connect(self.config())) as connection, connection.cursor() as cursor:
            rows = list(cursor.execute(statement).fetchall())
            return [column[0] for column in cursor.description], rows

    def tables(self, schema: str) -> list[str]:
        with closing(SnowflakeSession(self.config(schema))) as session:
            return sorted(session._comments(schema))

    def clear(self) -> None:
        for schema in self.made:
            for end in ("", OWN):
                self.query(f'DROP SCHEMA IF EXISTS "{self.database.upper()}"."{schema}{end}"')


@contextmanager
def snowflake_service(folder: Path) -> Iterator[SnowflakeService]:
    """An account, where the environment names one, else an emulator."""
    live = os.environ.get(LIVE)
    if live is not None:
        account, user, database, prefix, warehouse, role, path = live.split(":")
        service = SnowflakeService(Path(path), account, user, database, prefix, warehouse, role)
        yield service
        service.clear()
        return
    port, key = free_port(), folder / "key.pem"
    key.write_bytes(private_key())
    service = SnowflakeService(key, endpoint=f"http://127.0.0.1:{port}")
    command = [str(servers.fakesnow()), "-I", str(EMULATOR), str(port)]
    process = Program.start(command, folder / "fakesnow.log", env=of_other_environment())
    try:
        process.until(lambda: _answers(f"{service.endpoint}/session"), 60, "the emulator answers")
        yield service
    finally:
        process.kill()


def _answers(address: str) -> bool:
    try:
        return requests.post(address, timeout=1).status_code > 0
    except requests.RequestException:
        return False


@dataclass(frozen=True)
class SnowflakeDatabase:
    folder: Path
    server: SnowflakeService
    schema: str
    lacking: frozenset[str] = frozenset()
    unfit: frozenset[str] = frozenset()

    def units(self, admit: Callable[[], None]) -> Units:
        return self.server.target(self.schema).units(Runtime(log_of(self.folder), admit, no_spark, "mysql"))

    def place(self, name: str, own: bool = False) -> str:
        return f'"{self.server.database.upper()}"."{self.schema}{OWN if own else ""}"."{name}"'

    def rows(self, schema: TableSchema) -> Rows:
        found, rows = self.server.named(f"SELECT * FROM {self.place(schema.table_name)}")
        kinds = {column.name: arrow_type(column.type) for column in schema.columns}
        return [{n: _value(v, kinds.get(n)) for n, v in zip(found, row, strict=True)} for row in rows]

    def lose(self, path: str) -> None:
        self.server.query(f"DROP TABLE {self.place(path, own=True)}")

    def holds(self, path: str) -> bool:
        return bool(self.server.query(f"SELECT 1 FROM {self.place(path, own=True)} LIMIT 1"))


def _value(value: Any, kind: pa.DataType | None) -> Any:
    if value is None or kind is None:
        return value
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        value = bytes(value)
    return json.loads(value) if pa.types.is_nested(kind) else pa.scalar(value, kind).as_py()
