"""When a server that stays with its first decision must be asked again about a table's rows."""

from dataclasses import replace

import pytest

from support.catalog import catalog_table
from support.lake import table_schema
from tailrace.changelog.records.tables import Parts
from tailrace.sources.postgresql.log.routes import Moved, Pauses, Routes
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
    return Routes(version, {ROOT: root(members).parts})


NOTHING = Moved()
AGAIN = Moved(frozenset({ROOT}), frozenset({ROOT}))
ANEW = Moved(frozenset({ROOT}))


@pytest.mark.parametrize(
    ("before", "now", "brought", "proven", "moved"),
    [
        ({"11": "5"}, {"11": "5"}, (), ((), ()), NOTHING),
        ({"11": "5"}, {"11": "5", "12": "7"}, (), ((), ()), AGAIN),
        ({"11": "5"}, {"11": "5", "12": "7"}, (), ((), ("12",)), ANEW),
        ({"11": "5"}, {"11": "5", "12": "7"}, (), (("12",), ()), NOTHING),
        ({"11": "5"}, {"11": "5", "12": "7", "13": "7"}, (), ((), ("12",)), AGAIN),
        ({"11": "5"}, {"11": "5", "12": "7", "13": "7"}, (), (("12",), ("12", "13")), ANEW),
        ({"11": "5"}, {"11": "8"}, (), ((), ()), AGAIN),
        ({"11": "5"}, {}, (), ((), ()), AGAIN),
        ({"11": "5"}, {"11": "5"}, ((ROOT, "12"),), ((), ()), AGAIN),
        ({"11": "5"}, {"11": "5"}, ((ROOT, "11"),), ((), ()), NOTHING),
    ],
    ids=[
        "same", "written", "unwritten", "made as a partition", "one of two", "one made, one attached",
        "attached again", "detached", "came and went", "known",
    ],
)  # fmt: skip
def test_what_was_attached_or_detached_is_followed_once(
    before: dict[str, str],
    now: dict[str, str],
    brought: tuple[tuple[int, str], ...],
    proven: tuple[tuple[str, ...], tuple[str, ...]],
    moved: Moved,
) -> None:
    """`proven`: settled and unwritten."""
    routes, found = looked(before), {ROOT: root(now)}
    assert routes.moved(found, brought, *proven) == moved
    routes.follow(found, moved.undecided)
    assert routes.moved(found, brought, *proven) == moved
    routes.follow(found)
    assert routes.moved(found, ()) == NOTHING


def test_a_table_that_was_a_partition_moves_with_its_former_root() -> None:
    both = frozenset({ROOT, LEAF})
    found = {ROOT: root({}), LEAF: alone(LEAF)}
    assert looked({str(LEAF): "5"}).moved(found, ()).tables == both
    found = {ROOT: root({"12": "5"}), LEAF: alone(LEAF)}
    assert looked({"12": "5"}).moved(found, {(ROOT, str(LEAF))}, {str(LEAF)}).tables == both


def test_a_new_table_and_its_partitions_are_asked_for_together_and_again_when_the_table_was_gone() -> None:
    routes, found = Routes(140000, {}), {ROOT: root({str(LEAF): "5"})}
    assert routes.new(found) == {str(ROOT), str(LEAF)}
    assert routes.new_files(found) == {str(LEAF)}
    assert routes.moved(found, (), {str(ROOT)}) == AGAIN
    assert routes.moved(found, (), {str(ROOT), str(LEAF)}) == NOTHING
    routes.follow(found)
    assert routes.new(found) == routes.new_files(found) == set()
    routes.follow({}, but={ROOT})
    assert routes.new(found) == set()
    routes.follow({})
    assert routes.new(found) == {str(ROOT), str(LEAF)}


def test_servers_that_decide_again_are_never_asked_again() -> None:
    routes, found = looked({"11": "5"}, version=150000), {ROOT: root({})}
    assert routes.moved(found, ()) == NOTHING
    assert routes.new({LEAF: alone(LEAF)}) == routes.new_files({LEAF: alone(LEAF)}) == set()


@pytest.mark.parametrize(("way", "pause"), [(0.1, 3.0), (5.0, 20.0), (50.0, 120.0)])
def test_the_pause_grows_with_the_way_of_markers(way: float, pause: float) -> None:
    pauses = Pauses()
    pauses.arrived(0.5, 0.9)
    assert pauses.over(1.0)
    pauses.begin(1000.0)
    pauses.arrived(999.0, 1100.0)  # it was sent before
    pauses.arrived(1001.0, 1001.0 + way)
    assert not pauses.over(1000.0 + pause - 0.1)
    assert pauses.over(1000.0 + pause)
