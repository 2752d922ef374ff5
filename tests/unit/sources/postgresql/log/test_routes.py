"""When a server that stays with its first decision must be asked anew about a table's rows."""

from dataclasses import replace

import pytest

from support.catalog import catalog_table
from support.lake import table_schema
from tailrace.changelog.records import Parts
from tailrace.sources.postgresql.log.routes import Routes
from tailrace.sources.postgresql.model import PgTable

ROOT, LEAF = 10, 11


def table(oid: int, parts: Parts) -> PgTable:
    return replace(catalog_table(table_schema([("id", "int64")], ["id"]), ["id"]), oid=oid, parts=parts)


def root(members: dict[str, str]) -> PgTable:
    """Its leaves, and the transactions that attached them."""
    return table(ROOT, {"partition": members, "file": {member: member for member in members}})


def alone(oid: int) -> PgTable:
    return table(oid, {"partition": {}, "file": {str(oid): str(oid)}})


def looked(members: dict[str, str], version: int = 140000) -> Routes:
    return Routes(version, {ROOT: root(members).parts}, begins=False, ours=False)


@pytest.mark.parametrize(
    ("before", "now", "brought", "untouched", "moved"),
    [
        ({"11": "5"}, {"11": "5"}, (), (), False),
        ({"11": "5"}, {"11": "5", "12": "7"}, (), (), True),
        ({"11": "5"}, {"11": "5", "12": "7"}, (), ("12",), False),
        ({"11": "5"}, {"11": "5", "12": "7", "13": "7"}, (), ("12",), True),
        ({"11": "5"}, {"11": "8"}, (), (), True),
        ({"11": "5"}, {}, (), (), True),
        ({"11": "5"}, {"11": "5"}, ((ROOT, "12"),), (), True),
        ({"11": "5"}, {"11": "5"}, ((ROOT, "11"),), (), False),
    ],
    ids=["same", "written", "unwritten", "one of two", "attached again", "detached", "came and went", "known"],
)
def test_what_was_attached_or_detached_is_followed_once(
    before: dict[str, str],
    now: dict[str, str],
    brought: tuple[tuple[int, str], ...],
    untouched: tuple[str, ...],
    moved: bool,
) -> None:
    routes, found = looked(before), {ROOT: root(now)}
    assert routes.moved(found, brought, untouched) == ({ROOT} if moved else set())
    routes.follow(found)
    assert not routes.moved(found, ())


def test_a_table_that_was_a_partition_moves_with_its_former_root() -> None:
    found = {ROOT: root({}), LEAF: alone(LEAF)}
    assert looked({str(LEAF): "5"}).moved(found, ()) == {ROOT, LEAF}
    assert looked({"12": "5"}).moved({ROOT: root({"12": "5"}), LEAF: alone(LEAF)}, {(ROOT, str(LEAF))}) == {ROOT, LEAF}


def test_of_a_new_table_nothing_is_decided_if_the_log_begins_or_the_publication_is_ours_or_it_was_never_written() -> (
    None
):
    found = {LEAF: alone(LEAF)}
    assert looked({}).moved(found, ()) == {LEAF}
    assert not looked({}).moved(found, (), (str(LEAF),))
    assert not Routes(140000, {}, begins=False, ours=True).moved(found, ())
    begun = Routes(140000, {}, begins=True, ours=False)
    begun.begin(found)
    assert not begun.moved(found, ())
    begun.begin({})
    assert begun.moved({ROOT: root({"12": "5"})}, ()) == {ROOT}


def test_servers_that_decide_again_are_never_asked_anew() -> None:
    assert not looked({"11": "5"}, version=150000).moved({ROOT: root({})}, ())
