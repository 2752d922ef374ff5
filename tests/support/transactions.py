"""Transactions whose ids are numbers, as PostgreSQL's are."""

from collections.abc import Iterable

import numpy as np

from tailrace.changelog.records import Transactions
from tailrace.changelog.state import TransactionLog
from tailrace.changelog.transactions import TransactionIds, TransactionStart


def numbered(numbers: Iterable[int], first_seqs: Iterable[int]) -> Transactions:
    return Transactions.of([TransactionStart("", *one) for one in zip(numbers, first_seqs, strict=True)])


def known(numbers: Iterable[int], first_seqs: Iterable[int]) -> TransactionLog:
    return TransactionLog().added(numbered(numbers, first_seqs))


def ids(*numbers: int) -> TransactionIds:
    return TransactionIds(("",), np.zeros(len(numbers), np.int64), np.array(numbers, np.int64))


def pairs(log: TransactionLog) -> list[tuple[int, int]]:
    """(number, first sequence)"""
    return [(start.number, start.first_seq) for start in log.starts]
