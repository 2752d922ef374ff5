"""Lends a port of the cluster's network namespace to this machine's loopback: kubectl, Helm and IDEs work from outside.

    python forward.py LISTEN_FD NAMESPACE HOST PORT      the listening socket is inherited, made outside

The process enters the namespace after it got its socket: connections come in from the one side and go out on the
other. Nothing else of the machine's network is touched.
"""

import asyncio
import ctypes
import os
import socket
import sys
from contextlib import suppress

CLONE_NEWNET = 0x40000000


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with suppress(ConnectionError, RuntimeError):
        writer.close()


async def serve(listener: socket.socket, host: str, port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()  # what stands behind is down: the caller sees a closed connection, as it would without us
            return
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    server = await asyncio.start_server(connected, sock=listener)
    await server.serve_forever()


def enter(namespace: str) -> None:
    """Move this process, still of one thread, into the network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(namespace) as handle:
        if libc.setns(handle.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


def main() -> None:
    descriptor, namespace, host, port = sys.argv[1:]
    listener = socket.socket(fileno=int(descriptor))
    enter(namespace)
    os.set_inheritable(listener.fileno(), False)
    asyncio.run(serve(listener, host, int(port)))


if __name__ == "__main__":
    main()
