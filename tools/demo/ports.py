"""Ports for servers that the demo, tests and benchmarks start."""

import secrets
import socket

# Below those that the kernel gives to outgoing connections (from 32768 on Linux) and Kubernetes to services (from
# 30000): the port of a server that restarts is not taken while it is away.
RANGE = range(20_000, 30_000)


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """`count` different ports of 127.0.0.1 on which nobody listens. Random: processes that choose at once differ."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(RANGE)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
