"""Unique indexes and foreign keys that people add to copies in a database: keys and unique values move and are swapped
while all of Tailrace is killed, and no reader of the copies sees a row that refers to none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.mysql import MARIADB_NEWEST, MYSQL
from support.postgres import PostgresServer
from support.proof.keyed import play
from support.proof.sums import OF_POSTGRES, POSTGRES, Copies, copies_between, in_turn
from support.versions import turn, turns

OF_MYSQL = (
    *((MYSQL, target) for target in (POSTGRES, MYSQL, MARIADB_NEWEST)),
    *((MARIADB_NEWEST, target) for target in (POSTGRES, MYSQL, "mariadb-10.11")),
    ("mysql-8.0", POSTGRES),
)
SEAMS = ("apply.before-commit=kill@3", "apply.after-commit=kill@2", "snapshot.before-register=kill")


@pytest.fixture(params=[*in_turn(OF_POSTGRES), *in_turn(OF_MYSQL)], ids="-to-".join)
def copies(request: pytest.FixtureRequest) -> Iterator[Copies]:
    with copies_between(request) as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_plain", turns(False, True))
def test_constraints_on_copies_hold_whoever_is_killed(copies: Copies, tmp_path: Path, is_plain: bool) -> None:
    """`is_plain`: a role that may not switch constraints off."""
    username = None
    if is_plain and isinstance(copies.server, PostgresServer):
        username = "plain"
        copies.server.execute("CREATE ROLE plain LOGIN; GRANT CREATE ON DATABASE copy TO plain")
    assert play(copies, tmp_path, turn() or 0, SEAMS, username)
