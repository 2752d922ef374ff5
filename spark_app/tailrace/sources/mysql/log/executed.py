"""The transactions that the server need not send again: the state that the journal keeps beside a position.

A prepared XA transaction must be sent again after a restart, for its rows are held in memory and scratch files only.
MySQL: its GTID is left out of the set, and the server sends exactly what is not in it. MariaDB knows one place per
domain: the state stays before the oldest prepared transaction, and what comes again is passed over by its position.
"""

import numpy as np

from tailrace.sources.mysql.gtid import GtidSet, MariaPosition
from tailrace.sources.mysql.log.events import Transaction
from tailrace.sources.mysql.log.fast_path import Run


class Executed:
    def __init__(self, state: str, mariadb: bool) -> None:
        self._set = GtidSet("" if mariadb else state)
        self._last = MariaPosition(state if mariadb else "")
        self._mariadb = mariadb
        self._before: dict[Transaction, str] = {}
        """MariaDB: prepared transaction -> the state before it, in log order."""

    def add(self, transaction: Transaction) -> None:
        if self._mariadb:
            self._last.add(*transaction.mariadb)
        else:
            self._set.add(transaction.prefix, transaction.number)

    def add_run(self, run: Run) -> None:
        """All transactions of the run."""
        if self._mariadb:
            for gtid in run.mariadb_gtids:
                self._last.add(*gtid)
            return
        prefixes, numbers = run.gtids
        if len(set(prefixes)) == 1 and (np.diff(numbers) == 1).all():  # the usual case
            self._set.add_range(prefixes[0], int(numbers[0]), int(numbers[-1]))
            return
        for prefix, number in zip(prefixes, numbers.tolist(), strict=True):
            self._set.add(prefix, number)

    def learn(self, state: str) -> None:
        """MariaDB says what its log holds before the file that begins."""
        self._last.learn(MariaPosition(state))

    def prepare(self, transaction: Transaction) -> None:
        """An XA transaction's rows are held."""
        if self._mariadb:
            self._before[transaction] = str(self._last)
            self.add(transaction)

    def decide(self, transaction: Transaction) -> None:
        """It was committed or rolled back."""
        if self._mariadb:
            self._before.pop(transaction, None)
        else:
            self.add(transaction)

    @property
    def exact(self) -> bool:
        """True if the state is all that was added."""
        return not self._before

    @property
    def state(self) -> str:
        if not self._mariadb:
            return str(self._set)
        return next(iter(self._before.values()), str(self._last))

    @property
    def place(self) -> str:
        """The state in the form of a request for what follows."""
        return MariaPosition(self.state).place if self._mariadb else self.state
