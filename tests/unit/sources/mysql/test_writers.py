"""Other servers that programs may write to, when a source seems quiet."""

from collections.abc import Callable
from typing import Any, cast

import pymysql
import pytest

from tailrace.databases.mysql.connect import Server
from tailrace.errors import TailraceError
from tailrace.sources.mysql import writers

Answer = list[tuple[Any, ...]]
NAMED: Answer = [("group_replication_group_name", "g")]


def cluster(**status: object) -> Answer:
    return [(f"wsrep_{name}", str(value)) for name, value in status.items()]


def denied() -> Answer:
    raise pymysql.err.OperationalError(1142, "SELECT command denied")


def lost() -> Answer:
    raise pymysql.err.OperationalError(2013, "Lost connection")


def members() -> Answer:
    return [("b", 3306), ("c", 3307)]


def obstacles(
    monkeypatch: pytest.MonkeyPatch,
    *,
    group: Answer | None = None,
    own: str | None = None,
    others: Callable[[], Answer] = list,
    status: Answer | None = None,
    stopped: bool = False,
) -> tuple[tuple[str, str], ...]:
    """Those of a server that is read-only and no replica, with these answers."""

    def execute(connection: Any, statement: str) -> Answer:
        if "@@global.read_only" in statement:
            return [(1, "here")]
        if "innodb_trx" in statement:
            return []
        if "SHOW GLOBAL VARIABLES" in statement:
            return group or []
        if "SHOW GLOBAL STATUS" in statement:
            return status or []
        if "member_host" in statement:
            return others()
        return [] if own is None else [(own,)]

    monkeypatch.setattr(writers, "execute", execute)
    monkeypatch.setattr(writers, "rows", lambda connection, statement: [])
    monkeypatch.setattr(writers, "server_of", lambda connection: Server("mysql", (9, 7, 0), "here"))
    return writers.writers(cast(Any, None), stopped).obstacles


def test_another_member_of_a_group_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ((message, fix),) = obstacles(monkeypatch, group=NAMED, own="ONLINE", others=members)
    assert message == "the source is one of several servers that programs may write to: b:3306, c:3307"
    assert "`STOP GROUP_REPLICATION`" in fix
    assert obstacles(monkeypatch, group=NAMED, own="ONLINE", others=members, stopped=True) == ()


def test_a_server_that_left_its_group_or_has_none_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert obstacles(monkeypatch) == ()
    assert obstacles(monkeypatch, group=[("group_replication_group_name", "")], own="ONLINE", others=denied) == ()
    assert obstacles(monkeypatch, group=NAMED, own="OFFLINE", others=members) == ()
    assert obstacles(monkeypatch, group=NAMED, own="ONLINE") == (), "the only member"


def test_a_server_that_was_expelled_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees no other member then."""
    assert "was expelled" in obstacles(monkeypatch, group=NAMED, own="ERROR")[0][0]


def test_members_that_may_not_be_seen_are_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ((message, fix),) = obstacles(monkeypatch, group=NAMED, own="ONLINE", others=denied)
    assert "may not see" in message and "GRANT SELECT ON performance_schema.replication_group_members TO" in fix
    with pytest.raises(TailraceError):
        obstacles(monkeypatch, group=NAMED, own="ONLINE", others=lost)


def test_other_nodes_of_a_galera_cluster_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    two = cluster(cluster_size=2, connected="ON", cluster_status="Primary")
    ((message, _),) = obstacles(monkeypatch, status=two)
    assert message.endswith("may write to: a Galera cluster of 2")
    cut = cluster(cluster_size=1, connected="ON", cluster_status="non-Primary")
    assert "in the non-Primary component" in obstacles(monkeypatch, status=cut)[0][0]
    alone = cluster(cluster_size=1, connected="ON", cluster_status="Primary")
    without = cluster(cluster_size=0, connected="OFF", cluster_status="Disconnected")
    assert obstacles(monkeypatch, status=alone) == obstacles(monkeypatch, status=without) == ()
