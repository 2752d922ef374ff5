"""The values of every type of PostgreSQL, MySQL and MariaDB, in Snowflake's emulator."""

from functools import partial
from pathlib import Path

import pytest

from support.every_type import require_mysql, require_postgresql
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.postgres import PostgresServer
from support.snowflake import SnowflakeService
from support.snowflake_reader import SnowflakeCopies
from support.versions import turns


@pytest.mark.timeout(300)
@pytest.mark.turn(0, 2)
def test_every_type_of_postgresql(postgres: PostgresServer, snowflake: SnowflakeService, tmp_path: Path) -> None:
    copies = SnowflakeCopies.of(snowflake)
    require_postgresql(postgres, snowflake.spec(copies.schema), partial(copies.read, "everything"), tmp_path)


@pytest.mark.timeout(300)
@pytest.mark.turn(1, 2)
@pytest.mark.parametrize("product", turns(MYSQL, MARIADB_NEWEST))
def test_every_type_of_mysql(product: str, snowflake: SnowflakeService, tmp_path: Path) -> None:
    copies = SnowflakeCopies.of(snowflake)
    with MysqlServer(product, sql_mode="ALLOW_INVALID_DATES", default_time_zone="+05:00") as server:
        require_mysql(server, snowflake.spec(copies.schema), partial(copies.read, "everything"), tmp_path)
