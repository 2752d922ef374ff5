"""The local socket: one thread per connection, each request answered in its order (protocol: `capture.protocol`)."""

import itertools
import logging
import socket
import threading
import time
from pathlib import Path

from pydantic import ValidationError

from tailrace.capture.inbox import Board, Call, Gone, Inbox
from tailrace.capture.protocol import REQUEST, Answer, ErrorAnswer, GetState
from tailrace.errors import TailraceError, where_of

log = logging.getLogger(__name__)
MAX_LINE = 64 << 20
"""Bytes of one request; a chunk by 10,000 keys is far below."""


class CaptureServer:
    """Listens from `start` to `stop`."""

    def __init__(self, path: Path, inbox: Inbox, board: Board) -> None:
        self._path = path
        self._inbox = inbox
        self._board = board
        self._numbers = itertools.count(1)
        self._socket: socket.socket | None = None
        self._inode = 0
        self.heard = time.monotonic()
        """The time of the last request: a driver that lives does so every second."""

    def start(self) -> None:
        """Only this user may connect. A socket left by a dead capture is replaced."""
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._path))
        self._path.chmod(0o600)
        listener.listen(64)
        self._socket, self._inode = listener, self._path.stat().st_ino
        threading.Thread(target=self._accept, args=(listener,), name="capture-accept", daemon=True).start()

    def stop(self) -> None:
        if self._socket is not None:
            # A successor may have put its own socket here already.
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                self._path.unlink(missing_ok=True)
            self._socket.shutdown(socket.SHUT_RDWR)  # `accept` does not hear of `close`
            self._socket.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed by `stop`
            number = next(self._numbers)
            name = f"capture-client-{number}"
            threading.Thread(target=self._serve, args=(connection, number), name=name, daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            with connection, connection.makefile("rb") as lines:
                while line := lines.readline(MAX_LINE):
                    self.heard = time.monotonic()
                    answer = self._answer(line, number)
                    connection.sendall(answer.model_dump_json(exclude_none=True).encode() + b"\n")
        except OSError as error:
            log.info("client %d disconnected: %s", number, error)
        finally:
            self._inbox.put(Gone(number))

    def _answer(self, line: bytes, number: int) -> Answer:
        try:
            request = REQUEST.validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            text = f"{first['msg']} at {'.'.join(map(str, first['loc']))}"
            return Answer(error=ErrorAnswer(name="InvalidRequest", message=text))
        if isinstance(request, GetState):
            if request.patience:
                self._board.ask(request.record_seconds)
            return Answer(state=self._board.state(request.after, request.patience))
        call = Call(request, number)
        self._inbox.put(call)
        try:
            return Answer(recorded=call.reply.result())
        except TailraceError as error:
            return Answer(error=_refusal(error))


def _refusal(error: TailraceError) -> ErrorAnswer:
    return ErrorAnswer(name=error.name, message=error.message, fix=error.fix, where=where_of(error))
