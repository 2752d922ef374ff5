"""Members of a Galera cluster: MariaDB 10.11 with Debian's provider."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import mysql_packages
from demo.ports import free_port
from support.mysql import MysqlServer
from support.waiting import until
from tailrace.spark import artifacts


@contextmanager
def cluster() -> Iterator[tuple[MysqlServer, MysqlServer]]:
    """Two members."""
    ports = [free_port() for _ in range(4)]
    with ExitStack() as stack:
        first = stack.enter_context(node(ports[:2]))
        stack.enter_context(ready(first))
        second = stack.enter_context(node(ports[2:], f"127.0.0.1:{ports[0]}", state_of(first)))
        stack.enter_context(ready(second))
        yield first, second


@contextmanager
def ready(server: MysqlServer) -> Iterator[None]:
    """It takes statements."""
    until(lambda: server.execute("SHOW STATUS LIKE 'wsrep_ready'") == [("wsrep_ready", "ON")], "it takes statements")
    yield


def state_of(server: MysqlServer) -> str:
    """What another one with the same rows has in its folder, so that none are sent to it when it joins."""
    names = ("wsrep_cluster_state_uuid", "wsrep_last_committed")
    uuid, number = (server.execute(f"SHOW STATUS LIKE '{name}'")[0][1] for name in names)
    return f"# GALERA saved state\nversion: 2.1\nuuid: {uuid}\nseqno: {number}\nsafe_to_bootstrap: 0\n"


def node(ports: list[int], cluster: str = "", state: str = "") -> MysqlServer:
    """A member of a Galera cluster, the first one without `cluster` and `state`."""
    listens, receives = (f"127.0.0.1:{port}" for port in ports)
    wsrep: dict[str, str | int] = {
        "on": "ON",
        "provider": str(mysql_packages.galera(artifacts.cache_dir() / "galera-4")),
        "cluster_address": f"gcomm://{cluster}",
        "provider_options": f"gmcast.listen_addr=tcp://{listens};ist.recv_addr={receives}",
        "node_address": "127.0.0.1",
        "sst_method": "skip",
    }
    options = {f"wsrep_{name}": value for name, value in wsrep.items()}
    made = MysqlServer("mariadb-10.11", innodb_autoinc_lock_mode=2, **options)
    if state:
        (made.data_dir / "grastate.dat").write_text(state)
    return made
