"""A MySQL in a pod of the tests' cluster, with the shop of `mysql_shop` in it, and a namespace for its Replicator."""

import os
import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager

import mysql_packages
import servers
from cluster import images, workload
from cluster.deploy import Cluster
from cluster.workload import Document
from support import mysql_shop
from support.cluster_shop import Shop
from support.mysql import MYSQL, MysqlServer

SERVICE = "shop-db"
USER = "tailrace"
PORT = 3306
_PROGRAMS = "/programs"
_SETTINGS = (
    *(
        "--datadir=/data/db",
        "--socket=/tmp/socket",
        "--pid-file=/tmp/pid",
        "--mysqlx=OFF",
        "--secure-file-priv=",
        f"--port={PORT}",
    ),
    *("--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--binlog-row-metadata=FULL", "--server-id=7"),
    *("--innodb-buffer-pool-size=64M", "--innodb-redo-log-capacity=8M"),
    # Probes connect and say nothing.
    *("--skip-name-resolve", "--max-connect-errors=1000000", "--init-file=/data/users.sql"),
)
_RIGHTS = "REPLICATION SLAVE, REPLICATION CLIENT, XA_RECOVER_ADMIN"
"""As docs/mysql.md grants them, and SELECT on the shop."""


class PodServer(MysqlServer):
    """What tests ask of a server, of the one in the pod, through a port of this machine."""

    def __init__(self, port: int) -> None:
        self.name, self.mariadb, self.variables = MYSQL, False, {}
        self.host, self.port, self.user = "127.0.0.1", port, "root"


@contextmanager
def open_mysql_shop(cluster: Cluster, space: str, password: str) -> Iterator[tuple[Shop, PodServer]]:
    """The namespace is removed at the end."""
    assert cluster.node is not None
    cluster.forget(space)
    folder = workload.volume_folder(cluster.node, space)
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, workload.USER, workload.USER)
    cluster.apply(
        workload.namespace(space),
        workload.secret(SERVICE, space, password=password),
        *workload.volume(space, cluster.node),
        *_server(space),
    )
    cluster.rolled_out(space, f"deployment/{SERVICE}")
    with cluster.port(space, SERVICE, PORT) as port:
        server = PodServer(port)
        server.script(
            f"CREATE USER {USER} IDENTIFIED BY '{password}'",
            f"GRANT {_RIGHTS} ON *.* TO {USER}",
            f"GRANT SELECT ON shop.* TO {USER}",
        )
        mysql_shop.create(server)
        shop = Shop(cluster, space, port, password)
        with closing(shop.objects):
            yield shop, server
    cluster.forget(space)


def _server(space: str) -> list[Document]:
    folder = servers.mysql(MYSQL)
    # The server runs as the pod's user, from wherever its folder is mounted.
    own = [part for part in mysql_packages.command(folder, MYSQL) if part != "--user=root"]
    command = shlex.join(part.replace(str(folder), _PROGRAMS) for part in own)
    script = (
        f"{command} --initialize-insecure --datadir=/data/db --secure-file-priv= --innodb-redo-log-capacity=8M\n"
        "echo \"CREATE USER root@'%';\" > /data/users.sql\n"
        "echo \"GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\" >> /data/users.sql\n"
        f"exec {command} {shlex.join(_SETTINGS)}\n"
    )
    mounts = {"programs": _PROGRAMS, "data": "/data", "tmp": "/tmp"}
    container = {
        "name": "mysql",
        "image": images.NAMES["spark"],
        "command": ["sh", "-ec", script],
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }
    pod = {
        "terminationGracePeriodSeconds": 2,
        "enableServiceLinks": False,
        "securityContext": {"runAsUser": workload.USER, "runAsGroup": workload.USER, "fsGroup": workload.USER},
        "containers": [container],
        "volumes": [
            {"name": "programs", "hostPath": {"path": str(folder), "type": "Directory"}},
            {"name": "data", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    labels, place = {"app": SERVICE}, workload.metadata(SERVICE, space)
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"selector": {"matchLabels": labels}, "strategy": {"type": "Recreate"}, "template": template}
    service = {"selector": labels, "ports": [{"name": "mysql", "port": PORT}]}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": service},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place, "spec": deployment},
    ]
