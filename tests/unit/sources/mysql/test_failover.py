"""What may not stand in a new server's log before something that was read."""

import pytest

from tailrace.sources.mysql.failover import MariadbRead, MysqlRead, disordered
from tailrace.sources.mysql.gtid import GtidSet
from tailrace.sources.mysql.log.events import Transaction

OLD, NEW, THIRD = (f"{n}e11fa47-71ca-11e1-9e33-c80aa9429562" for n in (3, 4, 5))


def mysql(read: str, purged: str = "") -> MysqlRead:
    return MysqlRead(GtidSet(read), OLD, GtidSet(purged))


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (f"{OLD}:1-9", []),  # what follows was written by the new server
        (f"{OLD}:1-9,{NEW}:1", []),
        (f"{OLD}:1-8,{NEW}:1-2:red:4", [f"{NEW}:1-2,{NEW}:red:4"]),
        (f"{OLD}:1-8:10-12", []),  # a replica changes the order of what is independent
        (f"{OLD}:1-8,{THIRD}:7", [f"{THIRD}:7"]),
    ],
)
def test_mysql_transactions_that_were_not_read_may_not_stand_before_one_that_was(place: str, found: list[str]) -> None:
    history = mysql(f"{OLD}:1-9")
    assert disordered(history.unread(place), history.missing(place), OLD) == found


def test_transactions_of_one_server_may_stand_in_any_order() -> None:
    history = mysql(f"{THIRD}:1-9")
    place = f"{THIRD}:1-8:10"
    assert not disordered(history.unread(place), history.missing(place), OLD)


def test_what_was_purged_stands_before_every_file() -> None:
    assert mysql(f"{OLD}:1-9", f"{OLD}:1-5").missing(f"{OLD}:6-9") == set()
    assert mysql(f"{OLD}:1-9", f"{OLD}:1-4").missing(f"{OLD}:6-9") == {("", OLD)}


def test_a_transaction_of_mysql_is_known_by_its_server_and_number() -> None:
    history, tagged = mysql(f"{OLD}:1-9:red:3"), Transaction(f"{OLD}:red:", 3)
    assert history.has(tagged) and not history.has(Transaction(f"{OLD}:red:", 4))
    assert (history.writer(tagged), history.name(tagged)) == (("", OLD), f"{OLD}:red:3")


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("0-1-9,1-1-4", []),
        ("0-1-8,0-2-9,1-1-4", ["0-2-9"]),
        ("0-1-10,0-2-9,1-1-4", []),
        ("0-1-9,1-1-3,2-2-1", ["2-2-1"]),  # in another domain, but before one that was read
        ("0-1-10,1-1-3", []),  # of the former server, which had it behind
        ("0-3-1,0-1-9,1-1-4", []),
    ],
)
def test_mariadb_transactions_that_were_not_read_may_not_stand_before_one_that_was(
    place: str, found: list[str]
) -> None:
    history = MariadbRead({(0, 1): 9, (1, 1): 4}, "1")
    assert disordered(history.unread(place), history.missing(place), "1") == found


def test_in_one_domain_mariadb_sends_nothing_that_stands_before_the_place() -> None:
    history = MariadbRead({(0, 1): 9, (0, 5): 10}, "1")
    assert disordered(history.unread("0-1-11"), history.missing("0-1-11"), "1") == ["0-1-11"]
    assert history.has(Transaction("", 4, (0, 1, 9))) and not history.has(Transaction("", 4, (0, 2, 1)))
