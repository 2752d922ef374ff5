"""Asks capture: used by planner, apply and the status server, in the driver and (chunks) in its threads.

One `CaptureClient` is one connection and may be shared by threads; a chunk's floor ends with the connection that began
it, so a planner keeps its client. Errors come back under their own names.
"""

import select
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from tailrace import errors
from tailrace.capture.protocol import (
    Answer,
    Append,
    BeginChunks,
    ChunkId,
    ErrorAnswer,
    GetState,
    RegisterChunk,
    ReportApplied,
    Request,
    StateAnswer,
)
from tailrace.capture.requests import ChunkTooOld
from tailrace.changelog.records.snapshots import ChunkRegistered
from tailrace.changelog.records.tables import Applied
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.errors import OutcomeUnknown, Retry, TailraceError

CONNECT_TIMEOUT = 5.0


class CaptureGone(OutcomeUnknown):
    """Capture does not answer, or died before it did: what was asked for may or may not be recorded."""

    where = "capture"
    away = True
    usual_fix = "Capture is started again by itself. `tailrace status` says why it ended."


class CaptureClient:
    """`connect` happens at the first request, and again after a failure."""

    def __init__(self, path: Path, timeout: float | None = None) -> None:
        """`timeout`: seconds to wait for an answer; None: as long as capture lives."""
        self._path = path
        self._timeout = timeout
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._lines: IO[bytes] | None = None
        self._over = False

    def state(
        self, after: RecordNumber = RecordNumber(-1), patience: float = 0.0, record_seconds: float = 0.0
    ) -> StateAnswer:
        """Waits up to `patience` seconds for a newer record than `after`; others that share the client wait, too.
        `record_seconds`: as in `GetState`."""
        answer = self._ask(GetState(after=after, patience=patience, record_seconds=record_seconds))
        assert answer.state is not None
        return answer.state

    def append(self, events: Sequence[object], added: Mapping[int, RecordNumber] | None = None) -> RecordNumber:
        """The number of the record that holds the events. `added`: as in `Append`."""
        return self._recorded(Append.model_validate({"events": tuple(events), "added": added or {}}))[0]

    def begin_chunks(self, *chunks: ChunkId) -> None:
        self._ask(BeginChunks(chunks=chunks))

    def register_chunk(
        self, chunk: ChunkRegistered, snapshot: str, columns: Sequence[str], further: Sequence[ChunkRegistered] = ()
    ) -> tuple[RecordNumber, Seq]:
        """(record, replay point), when the record is durable: it may take a while, so it has a connection of its
        own. `further`: as in `RegisterChunk`."""
        with CaptureClient(self._path, self._timeout) as own:
            request = RegisterChunk(chunk=chunk, snapshot=snapshot, columns=tuple(columns), further=tuple(further))
            record, replay_point = own._recorded(request)
        assert replay_point is not None
        return record, replay_point

    def report_applied(self, tables: Iterable[Applied], cut_off: Iterable[int]) -> None:
        self._ask(ReportApplied(tables=tuple(tables), cut_off=tuple(cut_off)))

    def close(self) -> None:
        """Closes the client for good: a thread that waits for an answer gets an error, and one that asks later does not
        open a connection that nothing would close."""
        self._over = True
        connection = self._socket
        if connection is not None:
            with suppress(OSError):  # it was not connected yet, or is closed already
                connection.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recorded(self, request: Request) -> tuple[RecordNumber, Seq | None]:
        answer = self._ask(request)
        assert answer.recorded is not None
        return answer.recorded.record, answer.recorded.replay_point

    def _ask(self, request: Request) -> Answer:
        with self._lock:
            if self._over:
                raise CaptureGone("the connection to capture was closed")
            try:
                line = self._exchange(request.model_dump_json().encode() + b"\n")
            except OSError as error:
                self._close()
                raise CaptureGone(f"capture does not answer on {self._path}: {error}") from error
            except BaseException:
                self._close()  # an answer may still come: it must not meet the next question
                raise
        if not line.endswith(b"\n"):
            with self._lock:
                self._close()
            raise CaptureGone("capture ended before it answered")
        answer = Answer.model_validate_json(line)
        if answer.error is not None:
            raise _error(answer.error)
        return answer

    def _exchange(self, request: bytes) -> bytes:
        if self._socket is not None and _ended(self._socket):
            self._close()  # that capture is gone; there may be another one, which has not been asked yet
        if self._socket is None or self._lines is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(CONNECT_TIMEOUT)
            self._socket.connect(str(self._path))
            self._socket.settimeout(self._timeout)
            self._lines = self._socket.makefile("rb")
        self._socket.sendall(request)
        return self._lines.readline()

    def _close(self) -> None:
        if self._lines is not None:
            self._lines.close()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._lines = None


def _ended(connection: socket.socket) -> bool:
    """The other side has closed it: nothing else is readable where nothing was asked."""
    looked = select.poll()
    looked.register(connection, select.POLLIN)
    return bool(looked.poll(0))


def _error(answer: ErrorAnswer) -> TailraceError:
    """The error under its own name, where it has one here."""
    error = _named(answer)
    error.where = answer.where or "capture"
    return error


def _named(answer: ErrorAnswer) -> TailraceError:
    if answer.name == ChunkTooOld.__name__:
        return ChunkTooOld(answer.message, answer.fix)
    kind = getattr(errors, answer.name, None)
    if isinstance(kind, type) and issubclass(kind, TailraceError) and not issubclass(kind, errors.TableStop):
        return kind(answer.message, answer.fix)
    return Retry(f"{answer.name}: {answer.message}", answer.fix)
