"""The values of every type of PostgreSQL, MySQL and MariaDB, in BigQuery's emulator: by chunks, by rows in a batch's
script and by load jobs."""

import re
from functools import partial
from pathlib import Path

import pytest

from support.bigquery import BigQueryService
from support.bigquery_reader import BigQueryCopies
from support.every_type import require_mysql, require_postgresql
from support.mysql import MARIADB_NEWEST, MYSQL, MysqlServer
from support.postgres import PostgresServer
from support.versions import turns
from tailrace.changelog.types import MAX_PRECISION
from tailrace.targets.bigquery import session


def is_emulated(kind: str) -> bool:
    """False: its copy is BIGNUMERIC, and the emulator's interface creates no table with such a column."""
    found = re.match(r"(?:numeric|decimal)\((\d+),(\d+)\)", kind)
    if found is None or int(found[1]) > MAX_PRECISION:
        return True
    return int(found[2]) <= 9 and int(found[1]) - int(found[2]) <= 29


@pytest.mark.timeout(300)
@pytest.mark.turn(0, 2)
def test_every_type_of_postgresql(
    postgres: PostgresServer, bigquery: BigQueryService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = BigQueryCopies.of(bigquery)
    read, jobs = partial(copies.read, "everything"), partial(monkeypatch.setattr, session, "LISTED_ROWS", 0)
    spec = bigquery.spec(copies.dataset)
    require_postgresql(postgres, spec, read, tmp_path, has=is_emulated, between=[jobs])


@pytest.mark.timeout(300)
@pytest.mark.turn(1, 2)
@pytest.mark.parametrize("product", turns(MYSQL, MARIADB_NEWEST))
def test_every_type_of_mysql(
    product: str, bigquery: BigQueryService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = BigQueryCopies.of(bigquery)
    read, jobs = partial(copies.read, "everything"), partial(monkeypatch.setattr, session, "LISTED_ROWS", 0)
    spec = bigquery.spec(copies.dataset)
    with MysqlServer(product, sql_mode="ALLOW_INVALID_DATES", default_time_zone="+05:00") as server:
        require_mysql(server, spec, read, tmp_path, has=is_emulated, between=[jobs])
