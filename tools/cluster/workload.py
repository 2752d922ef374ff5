"""The objects in the cluster beside the operator: a PostgreSQL in a pod, a volume, a Replicator and a SnapshotRequest.

Plain documents, for `make cluster` and for the tests. On the one-node cluster the PostgreSQL is that of `make setup`,
which the pod sees through the node's disk, and the volume is a folder of the node; elsewhere they are the public image
and a claim of the cluster's default class.
"""

from pathlib import Path
from typing import Any

import servers

from .images import NAMES
from .node import Node

Document = dict[str, Any]
DATA = "/data"
"""The folder in which driver and executors see the volume."""
USER = 185
OURS = {"app.kubernetes.io/managed-by": "tailrace-make-cluster"}
"""Label of the namespaces that are made here, and therefore may be deleted here."""
API = "tailrace.dev/v1alpha1"
PUBLIC_IMAGE = "postgres:18"
START = """
export PATH=/pg/bin:$PATH
if [ ! -s /pgdata/db/PG_VERSION ]; then
  initdb -D /pgdata/db -U postgres --encoding=UTF8 --locale=C.UTF-8 \\
    --auth=scram-sha-256 --pwfile=/password/password >/dev/null
  printf 'host all all all scram-sha-256\\nhost replication all all scram-sha-256\\n' >> /pgdata/db/pg_hba.conf
fi
exec postgres -D /pgdata/db -c wal_level=logical -c listen_addresses='*' -c unix_socket_directories=/tmp \\
  -c max_replication_slots=20 -c max_wal_senders=20 -c shared_buffers=32MB -c max_connections=100 -c fsync=off
"""


def metadata(name: str, namespace: str) -> Document:
    return {"name": name, "namespace": namespace}


def namespace(name: str) -> Document:
    labels = {**OURS, "pod-security.kubernetes.io/warn": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def secret(name: str, space: str, **data: str) -> Document:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata(name, space), "stringData": data}


def postgres(space: str, node: Node | None) -> list[Document]:
    """A server `shop-db` with its Service; the password of `postgres` is in Secret `shop-db`."""
    labels = {"app": "shop-db"}
    pod: Document = {
        "terminationGracePeriodSeconds": 2,
        "enableServiceLinks": False,
        "containers": [_server(node)],
        "volumes": [
            {"name": "data", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "password", "secret": {"secretName": "shop-db"}},
        ],
    }
    if node is not None:
        programs = servers.postgres_dir(max(servers.POSTGRES_VERSIONS))
        pod["volumes"].append({"name": "programs", "hostPath": {"path": str(programs), "type": "Directory"}})
        pod["securityContext"] = {"runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    service = {"selector": labels, "ports": [{"name": "postgresql", "port": 5432}]}
    workload = {
        "selector": {"matchLabels": labels},
        "strategy": {"type": "Recreate"},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata("shop-db", space), "spec": service},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("shop-db", space), "spec": workload},
    ]


def _server(node: Node | None) -> Document:
    container: Document = {
        "name": "postgresql",
        "image": PUBLIC_IMAGE,
        "ports": [{"containerPort": 5432}],
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "readinessProbe": {"tcpSocket": {"port": 5432}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": "data", "mountPath": "/pgdata"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "password", "mountPath": "/password", "readOnly": True},
        ],
    }
    if node is None:
        # The public image makes the database by itself, as a user of its own.
        file = {"name": "POSTGRES_PASSWORD_FILE", "value": "/password/password"}
        folder = {"name": "PGDATA", "value": "/pgdata/db"}
        arguments = ["postgres", "-c", "wal_level=logical", "-c", "max_replication_slots=20"]
        return {**container, "env": [file, folder], "args": arguments}
    mounts = [*container["volumeMounts"], {"name": "programs", "mountPath": "/pg", "readOnly": True}]
    return {**container, "image": NAMES["spark"], "command": ["sh", "-ec", START], "volumeMounts": mounts}


def volume(space: str, node: Node | None, size: str = "10Gi") -> list[Document]:
    """A claim `shop-data`; on the one-node cluster bound to the folder of `volume_folder`."""
    spec: Document = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata("shop-data", space)}
    if node is None:
        return [{**claim, "spec": spec}]
    name = f"{space}-shop-data"
    disk = {
        "storageClassName": "",
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": {"namespace": space, "name": "shop-data"},
        "hostPath": {"path": str(volume_folder(node, space)), "type": "Directory"},
    }
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": disk},
        {**claim, "spec": {**spec, "storageClassName": "", "volumeName": name}},
    ]


def volume_folder(node: Node, space: str) -> Path:
    """The volume as the node's own processes (and the tests) see it."""
    return node.state / "volumes" / space


def replicator(space: str, name: str = "shop", **more: Any) -> Document:
    """Delta tables and change log on the volume, one executor; sized for a small machine."""
    pod = {
        "cores": 1,
        "memory": "1Gi",
        "cpuRequest": "100m",
        "podTemplate": {
            "spec": {
                "containers": [{"name": "tailrace", "volumeMounts": [{"name": "data", "mountPath": DATA}]}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "shop-data"}}],
            }
        },
    }
    spec = {
        "source": {
            "type": "postgresql",
            "host": "shop-db",
            "database": "postgres",
            "username": "postgres",
            "credentials": {"secretName": "shop-db"},
        },
        "tables": {"include": ["public.*"]},
        "target": {"type": "delta", "location": f"file://{DATA}/lake/{name}"},
        "storage": {"location": f"file://{DATA}/log/{name}"},
        "driver": pod,
        "executors": pod,
        **more,
    }
    return {"apiVersion": API, "kind": "Replicator", "metadata": metadata(name, space), "spec": spec}


def snapshot_request(space: str, name: str, tables: list[str], **more: Any) -> Document:
    return {
        "apiVersion": API,
        "kind": "SnapshotRequest",
        "metadata": metadata(name, space),
        "spec": {"replicator": "shop", "tables": tables, **more},
    }
