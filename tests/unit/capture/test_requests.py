"""Chunks that are registered after their table's columns have changed, and those of tables without a key."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.states import chunk, logged, table_log
from support.transactions import known
from tailrace.capture import requests as capture_requests
from tailrace.capture.inbox import Call
from tailrace.capture.protocol import RegisterChunk
from tailrace.capture.requests import ChunkRequests, ChunkTooOld
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.terms import Column, Position, Seq, TableSchema
from tailrace.changelog.state import LoggedSchema
from tailrace.sources.postgresql.visibility import PgSnapshot

FORMS = ({1: "id", 2: "a", 3: "b"}, {1: "id", 2: "b", 3: "a"}, {1: "id", 3: "a", 4: "b"})
"""An exchange of names; a drop, and an addition under the same name. Each form has the same names."""
CHUNK = chunk(snapshot_id="x", replay_point=0, high=5, layout="")


def form(version: int) -> LoggedSchema:
    columns = tuple(Column(name=name, id=i, source_type="", type="string") for i, name in FORMS[version - 1].items())
    schema = TableSchema(table_id=7, schema_name="s", table_name="t", version=version, columns=columns)
    return logged(schema, version)


@pytest.mark.parametrize(
    ("read", "oldest", "newest", "fits"),
    [(1, 1, 2, False), (1, 1, 3, False), (2, 1, 3, False), (3, 1, 3, True), (1, 2, 3, False), (2, 3, 3, False)],
)
def test_a_chunk_is_not_taken_for_one_of_other_columns_that_have_the_same_names(
    read: int, oldest: int, newest: int, fits: bool
) -> None:
    """`oldest`: the log has forgotten the versions before it, so nothing tells which columns they had."""
    schemas = tuple(form(version) for version in range(oldest, newest + 1))
    table = table_log(schemas[0].table, schemas=schemas, trimmed_through=9)
    state = SimpleNamespace(
        tables={7: table},
        snapshots={},
        source_since=Position(0),
        last_seq=Seq(0),
        transactions=SimpleNamespace(trimmed_through=Seq(0), pieces=lambda: ()),
    )
    recorder = cast(Any, SimpleNamespace(journal=SimpleNamespace(state=state)))
    stream = cast(Any, SimpleNamespace(is_captured=lambda _: True, version_with=lambda *_: newest))
    visible = cast(Any, SimpleNamespace(past=lambda _: True))
    requests = ChunkRequests(recorder, stream, lambda: Position(5), lambda _: visible)
    asked = CHUNK.model_copy(update={"schema_version": read})
    call = Call(RegisterChunk(chunk=asked, snapshot="", columns=("id", "a", "b")), 1)
    requests.serve(call)
    requests.register(Position(5))
    error = call.reply.exception(0)
    # One that fits goes on, to where the log no longer holds what must be replayed over it.
    assert isinstance(error, ChunkTooOld)
    assert ("dropped or exchanged" in error.message) is not fits


def registered(keyless: bool, hidden: int, ranges: int) -> tuple[ChunkRegistered, ...] | ChunkTooOld:
    """The events of a chunk of two files, whose snapshot does not see transaction `hidden` of several."""
    table = table_log(form(1).table.model_copy(update={"keyless": keyless}))
    state = SimpleNamespace(
        tables={7: table},
        snapshots={},
        source_since=Position(0),
        last_seq=Seq(40),
        transactions=known([10, 11, 12, 13], [1, 11, 21, 31]),
    )
    events: list[tuple[ChunkRegistered, ...]] = []
    recorder = SimpleNamespace(journal=SimpleNamespace(state=state), request=lambda asked: events.append(asked.events))
    stream = cast(Any, SimpleNamespace(is_captured=lambda _: True, version_with=lambda *_: 1))
    snapshot = PgSnapshot(10, 14, frozenset({hidden}))
    requests = ChunkRequests(cast(Any, recorder), stream, lambda: Position(5), lambda _: snapshot)
    part = CHUNK.model_copy(update={"chunk": 1})
    call = Call(RegisterChunk(chunk=CHUNK, snapshot="", columns=("id", "a", "b"), further=(part,)), 1)
    requests.serve(call)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture_requests, "MOST_RANGES", ranges)
        requests.register(Position(5))
    if not events:
        error = call.reply.exception(0)
        assert isinstance(error, ChunkTooOld)
        return error
    return events[0]


def test_a_reading_of_a_table_without_a_key_is_recorded_at_once_with_what_it_saw_behind_its_replay_point() -> None:
    found = registered(True, hidden=11, ranges=1)
    assert not isinstance(found, ChunkTooOld)
    assert [(e.chunk, e.replay_point, e.seen) for e in found] == [(n, 11, ((21, 40),)) for n in (0, 1)]
    keyed = registered(False, hidden=11, ranges=1)
    assert not isinstance(keyed, ChunkTooOld)
    assert [e.seen for e in keyed] == [(), ()]


def test_a_reading_that_saw_too_much_behind_its_replay_point_is_read_again() -> None:
    found = registered(True, hidden=11, ranges=0)
    assert isinstance(found, ChunkTooOld) and "visible before" in found.message
