"""A relay in front of a database server, which cuts connections where a network would: before or after a COMMIT."""

import selectors
import socket
import threading
from contextlib import ExitStack, suppress
from typing import Self

COMMIT = b"COMMIT"


class Relay:
    """Listens on the loopback interface and passes on what comes, until it is told to cut."""

    host = "127.0.0.1"

    def __init__(self, port: int) -> None:
        """`port`: the server's; another one later is a failover."""
        self.server_port = port
        self.cut: str | None = None
        """`before`: the next COMMIT does not reach the server. `after`: its answer does not reach the client. None: it
        has been done."""
        self._listener = socket.create_server((self.host, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with ExitStack() as stack, suppress(OSError):
            stack.enter_context(client)
            server = stack.enter_context(socket.create_connection((self.host, self.server_port)))
            ready = stack.enter_context(selectors.DefaultSelector())
            ready.register(client, selectors.EVENT_READ)
            ready.register(server, selectors.EVENT_READ)
            while all(self._passed(key.fileobj is client, client, server) for key, _ in ready.select()):
                pass

    def _passed(self, asks: bool, client: socket.socket, server: socket.socket) -> bool:
        """False: the connection has ended."""
        data = (client if asks else server).recv(1 << 16)
        if not data:
            return False
        cut = self.cut if asks and COMMIT in data[:16] else None
        if cut is not None:
            self.cut = None
        if cut == "before":
            return False
        (server if asks else client).sendall(data)
        if cut == "after":
            server.recv(1 << 16)
            return False
        return True
