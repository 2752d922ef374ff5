"""Servers that cannot be a target are refused by name, before anything is made."""

from typing import Any, cast

import pytest

from tailrace.contract.resources import TargetSpec
from tailrace.errors import TargetRefused
from tailrace.targets.postgresql.session import PgTargetSession
from tailrace.targets.postgresql.target import PgTarget

GOOD = (140000, False, True, True, "UTF8")


class Answering:
    """A server that says this of itself."""

    def __init__(self, found: tuple[object, ...]) -> None:
        self.found = found

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return [self.found]

    def quote(self, name: str) -> str:
        return f'"{name}"'


def required(found: tuple[object, ...]) -> None:
    spec = {"type": "postgresql", "host": "h", "database": "shop", "username": "poor man"}
    PgTarget(TargetSpec.model_validate(spec))._require(cast(PgTargetSession, Answering(found)))


@pytest.mark.parametrize(
    ("found", "words", "fix"),
    [
        ((130014, *GOOD[1:]), "is PostgreSQL 13", "Use PostgreSQL 14 or later."),
        ((180000, True, False, False, "UTF8"), "is a standby", "Name the primary server."),
        ((*GOOD[:4], "SQL_ASCII"), "stores texts as SQL_ASCII", "Use a database with the encoding UTF8 as the target."),
        (
            (180000, False, False, True, "UTF8"),
            "poor man may not create schemas in h:5432/shop",
            'Run `GRANT CREATE ON DATABASE "shop" TO "poor man"`.',
        ),
        (
            (180000, False, True, False, "UTF8"),
            "poor man may not create temporary tables in h:5432/shop",
            'Run `GRANT TEMPORARY ON DATABASE "shop" TO "poor man"`.',
        ),
    ],
)
def test_a_server_that_lacks_something_is_refused(found: tuple[object, ...], words: str, fix: str) -> None:
    with pytest.raises(TargetRefused, match=words) as refused:
        required(found)
    assert refused.value.fix == fix


def test_the_first_version_that_has_all_is_taken() -> None:
    required(GOOD)
