"""What the recorder makes of a stream's cuts: positions that do not go back, and transactions that are told once."""

from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pytest

from support.journals import table_schema
from support.origins import origin
from tailrace.capture.recorder import Recorder, Requested
from tailrace.changelog.records import Heartbeat
from tailrace.changelog.records.snapshots import SnapshotPlanned
from tailrace.changelog.records.tables import TableAdded, TableFingerprint, TableRemoved, TableStopped, Truncated
from tailrace.changelog.records.terms import Position, RecordNumber, ResumePoint, Seq
from tailrace.changelog.segments import COMMIT_TS, OLD_KEY, OP, SEQ, UNCHANGED, segment_schema
from tailrace.changelog.transactions import TransactionStart
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.resources import StorageSpec
from tailrace.errors import Retry
from tailrace.sources.api import Changes, TableRows
from tailrace.storage.store import Storage


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    storage = Storage.open(StorageSpec(location=tmp_path.as_uri()))
    journal = JournalWriter.create(storage, origin(), Position(5), "a", source_state="u:1-5")
    journal.append(Position(5), events=(TableAdded(table=table_schema(1), edge=""),))
    return Recorder(journal, lambda: None, lambda _: None)


def stretch(seq: int, *starts: TransactionStart) -> Changes:
    """One TRUNCATE."""
    truncated = Truncated(table_id=1, seq=Seq(seq), transaction="u:9")
    return Changes([], [truncated], Seq(seq), list(starts), (1, 1), leaves=[])


def test_a_column_whose_values_became_null_is_named_once_without_them(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    for seq in (1, 2):
        rows = pa.table(
            {SEQ: [seq], OP: ["I"], COMMIT_TS: [0], UNCHANGED: [None], OLD_KEY: [None], "id": [7], "c1": [None]}
        )
        rows = rows.cast(segment_schema(table_schema(1)))
        table = TableRows(table_schema(1), rows, (("c1", 1),))
        recorder.rows(Changes([table], [], Seq(seq), [TransactionStart("u:", seq, seq)], (1, 1), leaves=[]))
        recorder.cut(ResumePoint(Position(8 + seq)))
    assert recorder.state.tables[1].nulled == (("c1", 2),)
    (line,) = [r for r in caplog.records if "become NULL" in r.getMessage()]
    assert "'c1'" in line.getMessage() and getattr(line, "table", "") == "public.t1"


def test_events_of_ours_and_of_rows_are_recorded_in_the_order_in_which_they_came(recorder: Recorder) -> None:
    """Rows may stop a table of which a look at the catalog has just told something; not the other way round."""
    stop = TableStopped(table_id=1, seq=Seq(1), error="NoKey", message="it has none", fix="", where="source")
    recorder.add(TableFingerprint(table_id=1, parts={"row": {"a": "b"}}))
    recorder.rows(Changes([], [stop], Seq(1), [TransactionStart("u:", 9, 1)], (1, 1), leaves=[]))
    recorder.add(TableRemoved(table_id=1, reason="gone"))
    recorder.cut(ResumePoint(Position(9)))
    table = recorder.state.tables[1]
    assert table.fingerprint == {"row": {"a": "b"}} and table.stopped == stop and table.removed


def test_a_cut_below_what_is_durable_keeps_position_and_state_together(recorder: Recorder) -> None:
    recorder.add(Heartbeat())
    recorder.cut(ResumePoint(Position(8), "u:1-8"))
    recorder.add(Heartbeat())
    recorder.cut(ResumePoint(Position(7), "u:1-7"), rows=False)
    assert recorder.state.number == 3
    assert recorder.state.resume_point == ResumePoint(Position(8), "u:1-8")


def test_a_transaction_that_goes_on_in_the_next_stretch_is_told_once(recorder: Recorder) -> None:
    """Another one may have the same number under another prefix."""
    recorder.rows(stretch(1, TransactionStart("u:", 9, 1)))
    recorder.rows(stretch(2, TransactionStart("u:", 9, 2)))
    recorder.rows(stretch(3, TransactionStart("v:", 9, 3)))
    recorder.cut(ResumePoint(Position(9), "u:1-9"))
    assert recorder.state.transactions.starts == [TransactionStart("u:", 9, 1), TransactionStart("v:", 9, 3)]


def test_what_is_said_of_a_table_that_was_added_again_meanwhile_is_refused_alone(recorder: Recorder) -> None:
    """Be it added in the very record that the request was for."""
    current, outdated, later = (Requested((planned(name),), Future(), added={1: added}) for name, added in ASKED)
    recorder.request(current)
    recorder.request(outdated)
    recorder.cut(ResumePoint(Position(6), None))
    assert current.reply.result(0) is not None
    assert isinstance(outdated.reply.exception(0), Retry)
    again = table_schema(1).model_copy(update={"version": 2})
    recorder.add(TableRemoved(table_id=1, reason="renamed"), TableAdded(table=again, edge=""))
    recorder.request(later)
    recorder.cut(ResumePoint(Position(7), None))
    assert isinstance(later.reply.exception(0), Retry)
    assert set(recorder.state.snapshots) == {"current"}


ASKED = (("current", RecordNumber(1)), ("outdated", RecordNumber(0)), ("later", RecordNumber(1)))


def planned(name: str) -> SnapshotPlanned:
    return SnapshotPlanned(snapshot_id=name, tables=(1,))


def test_a_request_that_does_not_fit_the_log_is_refused_alone(recorder: Recorder) -> None:
    """A chunk of a table that has just stopped comes together with the request that has the table read again."""

    asked = []
    for name, table_id in [("a", 1), ("b", 7), ("c", 1), ("a", 1), ("d", 1)]:
        asked.append(Requested((planned(name).model_copy(update={"tables": (table_id,)}),), Future(), added={}))
        recorder.request(asked[-1])
    recorder.rows(stretch(1, TransactionStart("u:", 9, 1)))
    point = ResumePoint(Position(9), "u:1-9")
    recorder.cut(point)
    while recorder.has_requests:
        recorder.cut(point)
    assert [type(each.reply.exception()).__name__ for each in asked] == [
        "NoneType", "RecordRefused", "NoneType", "RecordRefused", "NoneType"
    ]  # fmt: skip
    assert list(recorder.state.snapshots) == ["a", "c", "d"] and len(recorder.state.tables[1].truncates) == 1
