"""The targets under test, each empty at first."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from support.bigquery import BigQueryDatabase, BigQueryService
from support.conforming import Database, InMemory, Lake, MysqlDatabase, Subject
from support.mysql import TARGETS, MysqlServer
from support.postgres import PostgresServer
from support.snowflake import SnowflakeDatabase, SnowflakeService
from support.versions import major_for, one_of

_numbers = count()
"""Of the databases that PostgreSQL's servers got."""


@pytest.fixture(scope="module")
def postgres_of_module(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with PostgresServer(major_for(request.module.__name__)) as server:
        yield server


@pytest.fixture(scope="module")
def mysql_of_module(request: pytest.FixtureRequest) -> Iterator[MysqlServer]:
    with MysqlServer(one_of(TARGETS, request.module.__name__)) as server:
        yield server


@pytest.fixture(params=["delta", "iceberg", "memory", "postgresql", "mysql", "bigquery", "snowflake"])
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    (tmp_path / "log").mkdir()
    if request.param == "memory":
        return InMemory(tmp_path)
    if request.param == "postgresql":
        server = request.getfixturevalue("postgres_of_module")
        name = f"copies{next(_numbers)}"
        server.execute(f"CREATE DATABASE {name}")
        return Database(tmp_path, server, database=name)
    if request.param == "bigquery":
        service: BigQueryService = request.getfixturevalue("bigquery")
        return BigQueryDatabase(tmp_path, service, service.new_dataset())
    if request.param == "snowflake":
        snowflake: SnowflakeService = request.getfixturevalue("snowflake")
        return SnowflakeDatabase(tmp_path, snowflake, snowflake.new_schema())
    if request.param == "mysql":
        server = request.getfixturevalue("mysql_of_module")
        for (name,) in server.execute("SELECT schema_name FROM information_schema.schemata"):
            if name in ("public", "_tailrace"):
                server.execute(f"DROP DATABASE {name}")
        return MysqlDatabase(tmp_path, server)
    return Lake(request.param, tmp_path, request.getfixturevalue("spark"))
