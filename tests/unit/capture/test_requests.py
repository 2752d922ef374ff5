"""Chunks that are registered after their table's columns have changed."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.capture.inbox import Call
from tailrace.capture.protocol import RegisterChunk
from tailrace.capture.requests import ChunkRequests, ChunkTooOld
from tailrace.changelog.records import ChunkRegistered, Column, Position, RecordNumber, Seq, TableSchema
from tailrace.changelog.state import LoggedSchema, TableLog

FORMS = ({1: "id", 2: "a", 3: "b"}, {1: "id", 2: "b", 3: "a"}, {1: "id", 3: "a", 4: "b"})
"""An exchange of names; a drop, and an addition under the same name. Each form has the same names."""


def logged(version: int) -> LoggedSchema:
    columns = tuple(Column(name=name, id=i, source_type="", type="string") for i, name in FORMS[version - 1].items())
    schema = TableSchema(table_id=7, schema_name="s", table_name="t", version=version, columns=columns)
    return LoggedSchema(record=RecordNumber(version), after_seq=Seq(0), table=schema)


@pytest.mark.parametrize(("read", "newest", "fits"), [(1, 2, True), (1, 3, False), (2, 3, False), (3, 3, True)])
def test_a_chunk_is_not_taken_for_one_of_other_columns_that_have_the_same_names(
    read: int, newest: int, fits: bool
) -> None:
    schemas = tuple(logged(version) for version in range(1, newest + 1))
    table = TableLog(
        table_id=7,
        added_record=RecordNumber(1),
        edge="1",
        initial_snapshot=True,
        schemas=schemas,
        removed_through=Seq(9),
    )
    state = SimpleNamespace(
        tables={7: table},
        snapshots={},
        source_since=Position(0),
        last_seq=Seq(0),
        transactions=SimpleNamespace(removed_through=Seq(0), pieces=lambda: ()),
    )
    recorder = cast(Any, SimpleNamespace(journal=SimpleNamespace(state=state)))
    stream = cast(Any, SimpleNamespace(is_captured=lambda _: True, version_with=lambda *_: newest))
    visible = cast(Any, SimpleNamespace(past=lambda _: True))
    requests = ChunkRequests(recorder, stream, lambda: Position(5), lambda _: visible)
    chunk = ChunkRegistered(
        snapshot_id="x",
        table_id=7,
        chunk=0,
        lower=None,
        upper=None,
        path=None,
        rows=0,
        size=0,
        schema_version=read,
        replay_point=Seq(0),
        high=Position(5),
        layout="",
    )
    call = Call(RegisterChunk(chunk=chunk, snapshot="", columns=("id", "a", "b")), 1)
    requests.serve(call)
    requests.register(Position(5))
    error = call.reply.exception(0)
    # One that fits goes on, to where the log no longer holds what must be replayed over it.
    assert isinstance(error, ChunkTooOld)
    assert ("dropped or exchanged" in error.message) is not fits
