"""Servers that cannot be a target are refused by name, before anything is made."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from tailrace.contract.resources import TargetSpec
from tailrace.databases.mysql.connect import Server
from tailrace.errors import TargetRefused
from tailrace.targets.mysql.session import MysqlTargetSession
from tailrace.targets.mysql.target import MysqlTarget

GOOD = (0, 0, 1, "ROW")


class Answers:
    def __init__(self, product: str, version: Sequence[int], settings: tuple[object, ...]) -> None:
        self.server, self.settings = Server(product, tuple(version), "id"), settings

    replicates: tuple[tuple[Any, ...], ...] = ()
    granted = 0
    for_everyone = False

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        if "super_read_only" in statement:
            return [("super_read_only", "ON")] if self.for_everyone else []  # MariaDB has no such variable
        if statement.startswith("SHOW"):
            return list(self.replicates)
        return [(self.granted,)] if values else [self.settings]

    def quote(self, name: str) -> str:
        return f"`{name}`"


def required(product: str, version: Sequence[int], settings: tuple[object, ...] = GOOD) -> None:
    target = MysqlTarget(TargetSpec.model_validate({"type": "mysql", "host": "h", "username": "u"}))
    target._require(cast(MysqlTargetSession, Answers(product, version, settings)))


@pytest.mark.parametrize(
    ("product", "version", "settings", "words"),
    [
        ("mysql", (8, 0, 15), GOOD, "is MySQL 8.0.15"),
        ("mariadb", (10, 5, 9), GOOD, "is MariaDB 10.5.9"),
        ("mysql", (8, 4), (1, 0, 1, "ROW"), "is read only"),
        ("mysql", (8, 4), (0, 1, 1, "ROW"), "lower_case_table_names is 1"),
        ("mariadb", (11, 8), (0, 0, 1, "STATEMENT"), "binary log by statements"),
    ],
)
def test_a_server_that_lacks_something_is_refused(
    product: str, version: Sequence[int], settings: tuple[object, ...], words: str
) -> None:
    with pytest.raises(TargetRefused, match=words):
        required(product, version, settings)


@pytest.mark.parametrize(
    ("product", "replicates", "granted", "words"),
    [
        ("mysql", (), 0, "GRANT CONNECTION_ADMIN ON"),
        ("mariadb", (), 0, "GRANT READ_ONLY ADMIN ON"),
        ("mysql", (("row",),), 1, "is a replica"),
        ("mysql", (), 1, None),
    ],
)
def test_a_server_that_is_read_only_for_programs_takes_the_way_back(
    product: str, replicates: tuple[tuple[Any, ...], ...], granted: int, words: str | None
) -> None:
    answers = Answers(product, (11, 8), (1, 0, 1, "ROW"))
    answers.replicates, answers.granted = replicates, granted
    target = MysqlTarget(TargetSpec.model_validate({"type": "mysql", "host": "h", "username": "u"}))
    if words is None:
        target._require(cast(MysqlTargetSession, answers))
        return
    with pytest.raises(TargetRefused, match=words):
        target._require(cast(MysqlTargetSession, answers))


def test_a_server_that_nobody_may_write_to_is_refused_whoever_asks() -> None:
    answers = Answers("mysql", (9, 7), (1, 0, 1, "ROW"))
    answers.granted, answers.for_everyone = 1, True
    target = MysqlTarget(TargetSpec.model_validate({"type": "mysql", "host": "h", "username": "u"}))
    with pytest.raises(TargetRefused, match="super_read_only is ON") as refused:
        target._require(cast(MysqlTargetSession, answers))
    assert "`SET GLOBAL super_read_only = OFF`" in refused.value.fix


def test_the_first_releases_that_have_all_are_taken() -> None:
    required("mysql", (8, 0, 23))
    required("mariadb", (10, 6, 0), (0, 0, 0, "STATEMENT"))
