"""Someone who is nobody's executor and talks to a Spark driver's RPC port. Also run as a script, inside a cluster."""

import socket
import struct
import sys

RPC_REQUEST = 3
GUARD, BEHIND = b"crypto.AuthRpcHandler", b"rpc.netty.NettyRpcHandler"
"""Classes in Spark's answer: who asks for proof, and who would have taken the request."""


def ask(host: str, port: int, timeout: float = 10.0) -> bytes:
    """All that the port answers to one request of Spark's transport protocol that proves nothing, until it hangs up or
    is silent."""
    body = b"stranger"
    head = struct.pack(">BqI", RPC_REQUEST, 1, len(body))
    answer = b""
    with socket.create_connection((host, port), timeout) as connection:
        connection.sendall(struct.pack(">q", 8 + len(head) + len(body)) + head + body)
        connection.settimeout(timeout)
        try:
            while data := connection.recv(65536):
                answer += data
        except (TimeoutError, ConnectionResetError):
            pass
    return answer


def is_refused(answer: bytes) -> bool:
    """By name; a port that says nothing proves nothing."""
    return GUARD in answer and BEHIND not in answer


if __name__ == "__main__":
    sys.stdout.write(ask(sys.argv[1], int(sys.argv[2]), 3).decode(errors="replace"))
