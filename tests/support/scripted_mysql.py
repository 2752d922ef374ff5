"""The wire side of a MySQL or MariaDB of any version: a greeting, and the same rows for the same question.

For versions of which no server is at hand: what is asked of each is checked, not what it would answer.
"""

import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

_EOF, _OK, _QUERY = b"\xfe\0\0\2\0", b"\0\0\0\2\0\0\0", 3
_CAPABILITIES = 0x000FF7FF & ~0x800
"""All of a server of the time before 8.0 but TLS."""


class ScriptedMysql:
    """On the loopback interface; a context manager."""

    def __init__(self, version: str, answers: Mapping[str, Sequence[str]]) -> None:
        """`answers`: to each question that it understands one row, or none. Settings are taken; others are syntax
        errors."""
        self._version = version
        self._answers = {"SELECT VERSION()": [version], **answers}
        self.asked: list[str] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                session, _ = self._listening.accept()
                with session, suppress(ConnectionError, struct.error):
                    self._session(session)

    def _session(self, session: socket.socket) -> None:
        low, high = _CAPABILITIES & 0xFFFF, _CAPABILITIES >> 16
        greeting = b"\x0a" + self._version.encode() + b"\0" + struct.pack("<I", 1) + b"12345678\0"
        greeting += struct.pack("<HBHHB10x", low, 45, 2, high, 21) + b"123456789012\0mysql_native_password\0"
        _send(session, 0, greeting)
        _receive(session)
        _send(session, 2, _OK)
        while True:
            command = _receive(session)
            if command[0] != _QUERY:
                return
            for number, packet in enumerate(self._answer(command[1:].decode()), 1):
                _send(session, number, packet)

    def _answer(self, question: str) -> list[bytes]:
        self.asked.append(question)
        row = self._answers.get(question)
        if row is not None:
            names = [_column(str(i)) for i in range(len(row) or 1)]
            rows = [b"".join(map(_text, row))] if row else []
            return [bytes([len(names)]), *names, _EOF, *rows, _EOF]
        if question.startswith("SET"):
            return [_OK]
        return [b"\xff" + struct.pack("<H", 1064) + b"#42000You have an error in your SQL syntax"]


def _text(value: str) -> bytes:
    return bytes([len(value)]) + value.encode()


def _column(name: str) -> bytes:
    return b"".join(map(_text, ("def", "", "", "", name, name))) + struct.pack("<BHIBHBH", 12, 45, 1024, 253, 0, 0, 0)


def _send(session: socket.socket, number: int, packet: bytes) -> None:
    session.sendall(len(packet).to_bytes(3, "little") + bytes([number]) + packet)


def _receive(session: socket.socket) -> bytes:
    with session.makefile("rb") as reader:
        (head,) = struct.unpack("<I", reader.read(4))
        return reader.read(head & 0xFFFFFF)
