"""What a chunk of MySQL or MariaDB contains."""

import numpy as np
import pytest

from tailrace.changelog.records import Transactions
from tailrace.changelog.records.terms import Position, Seq
from tailrace.changelog.state import TransactionLog
from tailrace.changelog.transactions import TransactionIds, TransactionStart
from tailrace.errors import CorruptLog, Retry
from tailrace.snapshot.replay import replay_point
from tailrace.sources.mysql.position import Numbering
from tailrace.sources.mysql.visibility import XA, position_text, snapshot_text, visibility, xa_number

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562:"
A_XID, B_XID = "x'61',x'',1", "x'62',x'',1"


def test_a_chunk_sees_the_executed_set_hole_by_hole() -> None:
    seen = visibility(f"gtid:{A}1-3:5,{A}red:9")
    ids = TransactionIds((A, f"{A}red:", "x:"), np.array([0, 0, 0, 1, 1, 2]), np.array([3, 4, 5, 9, 1, 3]))
    assert seen.sees(ids).tolist() == [True, False, True, True, False, False]
    assert (seen.past(f"{A}1-2"), seen.past(f"{A}1-4"), seen.past("")) == (True, False, True)


def test_a_mariadb_chunk_sees_what_began_before_its_position() -> None:
    seen = visibility("maria:100")
    assert seen.sees(TransactionIds(("",), np.zeros(3, np.int64), np.array([99, 100, 101]))).tolist() == [
        True,
        False,
        False,
    ]
    assert (seen.past("100"), seen.past("101"), seen.past("")) == (True, False, True)


def test_a_mariadb_chunk_did_not_see_an_xa_transaction_that_is_in_the_log_and_still_listed() -> None:
    """Its XA COMMIT at 50 has two ids; the one at 60 is carried out."""
    late, other = xa_number(A_XID), xa_number(B_XID)
    seen = visibility("maria:" + position_text(Position(100), [A_XID]))
    ids = TransactionIds(("", XA), np.array([0, 0, 1, 0, 1]), np.array([40, 50, late, 60, other]))
    assert seen.sees(ids).tolist() == [True, True, False, True, True]
    assert visibility("maria:100").sees(ids).all()
    tables = TransactionLog().added(Transactions.of([TransactionStart("", 40, 1), TransactionStart("", 50, 3)]))
    commit = Transactions.of([TransactionStart("", 60, 7), TransactionStart(XA, late, 7), TransactionStart("", 70, 9)])
    assert replay_point(seen, tables.added(commit), Seq(10)) == 7


def test_a_mariadb_chunk_did_not_see_what_an_edge_says_may_still_come() -> None:
    """An XA transaction that was listed where the table began, though the log had it as decided."""
    edge = position_text(Position(90), [A_XID])
    assert not visibility("maria:" + position_text(Position(100), [B_XID, A_XID])).past(edge)
    assert visibility("maria:" + position_text(Position(100), [B_XID])).past(edge)
    assert not visibility("maria:80").past(edge) and visibility("maria:100").past(edge)


@pytest.mark.parametrize("text", ["", "5", "maria:x", "maria:1/y", "gtid:a:1-c"])
def test_another_text_is_a_corrupt_log(text: str) -> None:
    with pytest.raises(CorruptLog):
        visibility(text).past("")


@pytest.mark.parametrize(("seen", "edge"), [(f"gtid:{A}1-3", f"{A}4"), ("maria:100", "101")])
def test_a_chunk_of_another_server_is_refused_and_one_of_its_own_server_is_not(seen: str, edge: str) -> None:
    text = snapshot_text(seen, "server_id 7", Numbering(3))
    assert not visibility(text).past(edge) and not visibility(text, "server_id 7", Numbering(3)).past(edge)
    for server, files in [("server_id 8", 3), ("server_id 7", 4)]:
        with pytest.raises(Retry, match="another server"):
            visibility(text, server, Numbering(files))
    with pytest.raises(Retry, match="unnamed"):
        visibility(seen, "server_id 7", Numbering(3))
