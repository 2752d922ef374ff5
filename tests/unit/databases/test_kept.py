"""A connection that is used for one transaction after the other, until one of them fails."""

from dataclasses import dataclass

import pytest

from tailrace.databases.kept import KeptConnection


@dataclass
class Connection:
    number: int
    closed: bool = False

    def close(self) -> None:
        self.closed = True


class Server:
    def __init__(self) -> None:
        self.made = list[Connection]()

    def connect(self) -> Connection:
        self.made.append(Connection(len(self.made)))
        return self.made[-1]


def test_transactions_share_it_until_one_fails() -> None:
    server = Server()
    kept = KeptConnection(server.connect)
    assert server.made == [], "it is opened when it is needed"
    for _ in range(3):
        with kept.use() as connection:
            assert connection.number == 0
    with pytest.raises(ValueError), kept.use():
        raise ValueError
    assert server.made[0].closed
    with kept.use() as connection:
        assert connection.number == 1
    kept.close()
    assert [connection.closed for connection in server.made] == [True, True]
    kept.close()


def test_one_that_a_transaction_has_changed_is_not_used_again() -> None:
    server = Server()
    kept = KeptConnection(server.connect, lambda connection: connection.number > 0)
    for number in (0, 1, 1):
        with kept.use() as connection:
            assert connection.number == number
    assert server.made[0].closed and not server.made[1].closed
