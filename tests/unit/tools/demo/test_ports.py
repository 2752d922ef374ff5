import socket
from pathlib import Path

import pytest

from demo import ports


def test_a_port_of_a_server_that_is_away_is_not_given_to_an_outgoing_connection() -> None:
    """Also not to one that tries to reach that server: it would be connected with itself."""
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    found = ports.free_ports(100)
    assert len(set(found)) == 100 and not set(found) & set(range(first, last + 1))


def test_a_port_in_use_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    used, free = ports.free_ports(2)
    monkeypatch.setattr(ports, "RANGE", [used, free])
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", used))
        assert {ports.free_port() for _ in range(20)} == {free}
