"""When a server that stays with its first decision must be asked anew about a partition's rows."""

from dataclasses import replace

import pytest

from support.catalog import catalog_table
from support.lake import table_schema
from tailrace.changelog.records import Parts
from tailrace.sources.postgresql.log.routes import Routes
from tailrace.sources.postgresql.model import PgTable

ROOT, LEAF = 10, 11


def root(members: dict[str, str], attached_later: tuple[str, ...] = ()) -> PgTable:
    """Its leaves, and the transactions that attached them."""
    found = catalog_table(table_schema([("id", "int64")], ["id"]), ["id"])
    parts: Parts = {"partition": members, "file": {member: member for member in members}}
    return replace(found, oid=ROOT, parts=parts, attached_later=frozenset(attached_later))


def looked(members: dict[str, str], version: int = 140000) -> Routes:
    return Routes(version, {ROOT: root(members).parts})


@pytest.mark.parametrize(
    ("before", "now", "later", "untouched", "moved"),
    [
        ({"11": "5"}, {"11": "5"}, (), (), False),
        ({"11": "5"}, {"11": "5", "12": "7"}, (), (), False),
        ({"11": "5"}, {"11": "5", "12": "7"}, ("12",), (), True),
        ({"11": "5"}, {"11": "5", "12": "7"}, ("12",), ("12",), False),
        ({"11": "5"}, {"11": "5", "12": "7", "13": "7"}, ("12",), ("12",), True),
        ({"11": "5"}, {"11": "8"}, ("11",), (), True),
        ({"11": "5"}, {}, (), (), True),
    ],
    ids=["same", "made as one", "attached", "attached unwritten", "and another one", "again", "detached"],
)
def test_what_was_attached_or_detached_is_followed_once(
    before: dict[str, str], now: dict[str, str], later: tuple[str, ...], untouched: tuple[str, ...], moved: bool
) -> None:
    routes, found = looked(before), {ROOT: root(now, later)}
    assert routes.follow(found, untouched) is moved
    assert routes.outdated == ({ROOT} if moved else set())
    assert not routes.follow(found, untouched)


def test_a_table_that_was_a_partition_is_outdated_with_its_former_root() -> None:
    alone = replace(catalog_table(table_schema([("id", "int64")], ["id"]), ["id"]), oid=LEAF, parts={"partition": {}})
    routes = looked({str(LEAF): "5"})
    assert routes.differ({ROOT: root({}), LEAF: alone})
    assert routes.follow({ROOT: root({}), LEAF: alone}, ())
    assert routes.outdated == {ROOT, LEAF}
    routes.forget({LEAF})
    assert routes.outdated == {LEAF}


def test_a_log_that_begins_has_nothing_behind_it_and_a_root_that_comes_later_has() -> None:
    found = {ROOT: root({"11": "5"}, ("11",))}
    begun = Routes(140000, {})
    begun.begin(found)
    assert not begun.differ(found)
    late = Routes(140000, {})
    late.begin({})
    assert late.differ(found)


def test_servers_that_decide_again_are_never_asked_anew() -> None:
    assert not looked({"11": "5"}, version=150000).differ({ROOT: root({})})
