"""What a server's refusal of START_REPLICATION comes to, whose slot is taken over, and how messages are handed over."""

import struct
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.changelog.records.terms import Position
from tailrace.databases.postgresql.connect import Connection
from tailrace.errors import PositionLost, Retry, SourceRefused
from tailrace.sources.postgresql.log import connection
from tailrace.sources.postgresql.log.connection import LogConnection, release_slot, start_error


@pytest.mark.parametrize(
    ("state", "kind"),
    [("42704", PositionLost), ("42501", SourceRefused), ("55006", Retry), ("55000", Retry), ("", Retry)],
)
def test_a_refused_start_is_told_by_its_sqlstate_in_any_language(state: str, kind: type[Exception]) -> None:
    error = start_error("shop", state, "FEHLER: Replikations-Slot »shop« existiert nicht")
    assert type(error) is kind
    assert "»shop« existiert nicht" in str(error)


class Holders:
    """Who holds the slot, at one look after the other."""

    def __init__(self, *rows: tuple[object, ...] | None) -> None:
        self._rows = list(rows)
        self.asked: list[str] = []

    def execute(self, statement: str, _: object) -> "Holders":
        self.asked.append(statement)
        return self

    def fetchone(self) -> tuple[object, ...] | None:
        return self._rows.pop(0)


def test_a_backend_that_is_just_ending_is_waited_for_and_taken_for_nobody_elses() -> None:
    """The slot still names it, the list of sessions does not."""
    holders, slept = Holders((11, None, None, None), (11, None, None, None), None), list[float]()
    release_slot(cast(Connection, holders), "slot", ["ours"], slept.append)
    assert len(slept) == 2
    assert all("pg_terminate_backend" not in statement for statement in holders.asked)


def test_a_holder_with_another_name_or_user_is_refused() -> None:
    for row in ((11, "theirs", True, "10.0.0.1"), (11, "ours", False, None)):
        with pytest.raises(SourceRefused, match="in use by backend 11"):
            release_slot(cast(Connection, Holders(row)), "slot", ["ours"], lambda _: None)


class Sent:
    """A connection that has received these frames: messages by their kinds, and positions of keep-alives."""

    socket = 0

    def __init__(self, frames: Sequence[str | int]) -> None:
        self.frames = iter(frames)

    def get_copy_data(self, _: int) -> tuple[int, memoryview]:
        frame = next(self.frames, None)
        if frame is None:
            return 0, memoryview(b"")
        if isinstance(frame, str):
            data = b"w" + bytes(24) + frame.encode()
        else:
            data = struct.pack(">BQqB", ord("k"), frame, 0, 0)
        return len(data), memoryview(data)


class Heard:
    """As the assembler: a position counts where no transaction is open."""

    def __init__(self) -> None:
        self.messages, self.position, self.calls = "", 0, 0

    def data(self, payloads: list[bytes]) -> None:
        self.calls += bool(payloads)
        self.messages += b"".join(payloads).decode()

    def keepalive(self, position: Position) -> None:
        if self.messages[-1:] in ("", "C"):
            self.position = max(self.position, position)


def hear(frames: Sequence[str | int], monkeypatch: pytest.MonkeyPatch) -> Heard:
    log, heard = LogConnection.__new__(LogConnection), Heard()
    log.__dict__.update(_pgconn=Sent(frames), _reply_wanted=False)
    with monkeypatch.context() as patched:
        patched.setattr(connection, "readable", lambda *_, **__: False)
        assert log.read(heard.data, heard.keepalive, 1 << 20, 60.0)
    return heard


def test_transactions_that_are_sent_one_by_one_are_handed_over_together(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [frame for at in range(1, 101) for frame in ("B", "U", "C", at)]
    heard = hear(frames, monkeypatch)
    assert heard.messages == "BUC" * 100
    assert (heard.position, heard.calls) == (100, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["BUC", "BUUC", "U", "B", "C", "k", "kk"]), max_size=12))
def test_keep_alives_say_what_they_would_in_their_places(monkeypatch: pytest.MonkeyPatch, parts: list[str]) -> None:
    frames = [at if kind == "k" else kind for at, kind in enumerate("".join(parts), 1)]
    heard, alone = hear(frames, monkeypatch), Heard()
    for frame in frames:
        if isinstance(frame, int):
            alone.keepalive(Position(frame))
        else:
            alone.data([frame.encode()])
    assert (heard.messages, heard.position) == (alone.messages, alone.position)
