"""A way to PostgreSQL on which a row with a certain word comes as a message that no version knows."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

WORD = "unheard-of"
_INSERTED = re.compile(rb"I(.{4}N\x00\x02t.{4}\d+t.{4}" + WORD.encode() + b")", re.DOTALL)
"""An INSERT of two columns in pgoutput, a number and the word; a server on the same machine sends it in one piece."""


@contextmanager
def spoiling(host: str, port: int) -> Iterator[int]:
    """Its port, which leads to the server's."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as ends:
        thread = threading.Thread(target=_accept, args=(listener, (host, port), ends))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket, server: tuple[str, int], ends: ExitStack) -> None:
    with suppress(OSError):
        while True:
            client = ends.enter_context(listener.accept()[0])
            there = ends.enter_context(socket.create_connection(server))
            for pair in ((client, there), (there, client)):
                carrier = threading.Thread(target=_carry, args=pair)
                carrier.start()
                ends.callback(_end, carrier, pair[0])


def _end(carrier: threading.Thread, one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    carrier.join()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 20):
            other.sendall(_INSERTED.sub(rb"!\1", data))
        other.shutdown(socket.SHUT_RDWR)
