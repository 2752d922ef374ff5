"""`make cluster`, `make cluster-status`, `make cluster-down`: Tailrace on a real Kubernetes, on this machine.

    python -m cluster up [--scale 0.1] [--no-demo] | status | down        (tools/ is on the path)

With KUBECONFIG set, that cluster is used in place of one of its own; it must be able to get the images that the chart
names (kind: `docker build`, `kind load docker-image`).
"""

import argparse
import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from demo import shop
from demo.compare import compare

from . import places, workload
from .deploy import OPERATOR_NAMESPACE, Cluster, CommandFailed, condition, message, wait_for
from .node import Say
from .services import NotReady

NAME = "dev"
SPACE = "shop"
AGAIN = "To begin again from nothing: make cluster-down, then make cluster."
WATCHED = "replicators,snapshotrequests"


def main() -> int:
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    parser.add_argument("action", choices=("up", "status", "down"))
    parser.add_argument("--scale", type=float, default=0.1, help="of the demo's data; 1: 1.3 million rows")
    parser.add_argument("--no-demo", action="store_true", help="only the cluster and the operator")
    options = parser.parse_args()
    cluster = chosen(os.environ.get("KUBECONFIG"))
    begun = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {what}", flush=True)

    try:
        if options.action == "down":
            down(cluster)
        elif options.action == "status":
            print(cluster.kubectl("get", "nodes,pods,replicators,snapshotrequests", "--all-namespaces", check=False))
        else:
            cluster.up(say)
            cluster.install()
            say("operator ready")
            if not options.no_demo:
                demo(cluster, options.scale, say)
            hint(cluster)
    except (CommandFailed, NotReady, PermissionError, TimeoutError, RuntimeError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except psycopg.Error as error:
        why = " ".join(str(error).split()) or type(error).__name__
        print(f"cluster: the demo's database refused or ended the connection: {why}", file=sys.stderr)
        print(f"See `kubectl -n {SPACE} get pods`, then run `make cluster` again: it continues.", file=sys.stderr)
        return 1
    return 0


def chosen(given: str | None) -> Cluster:
    """KUBECONFIG's cluster. Where it names the own node, as `hint` tells people to set it, that is the own one."""
    own = Cluster.own(NAME)
    if not given or Path(given).absolute() == own.kubeconfig:
        return own
    return Cluster.given(Path(given))


def down(cluster: Cluster) -> None:
    if cluster.node is not None:
        cluster.down()
        return
    cluster.forget(SPACE)
    cluster.down()
    print(f"Kept are the namespace {OPERATOR_NAMESPACE} and the resource definitions. If nothing else uses them:")
    print(f"  kubectl delete namespace {OPERATOR_NAMESPACE}")
    print("  kubectl delete crd replicators.tailrace.dev snapshotrequests.tailrace.dev")


def hint(cluster: Cluster) -> None:
    if cluster.node is not None:
        kubectl = places.program("kubectl")
        print(f"\nTo look around:\n  export KUBECONFIG={cluster.kubeconfig}\n  {kubectl} get repl,snapreq -A")
        print("To remove it: make cluster-down")


def demo(cluster: Cluster, scale: float, say: Say) -> None:
    """A shop in a pod, replicated while it is written to; a snapshot on request; the comparison at the end."""
    found = cluster.get(SPACE, "secret", "shop-db")
    password = _password(cluster) if found else secrets.token_urlsafe(18)
    cluster.prepare(SPACE, password)
    say("PostgreSQL ready")
    with cluster.port(SPACE, "shop-db", 5432) as port:

        def connect() -> psycopg.Connection:
            return psycopg.connect(host="127.0.0.1", port=port, user="postgres", password=password, dbname="postgres")

        with connect() as connection:
            if connection.execute("SELECT to_regclass('shop.orders')").fetchone() == (None,):
                say(f"{shop.create(connection, scale):,} rows in {len(shop.TABLES)} tables")
        load = shop.Load(shop.session_of(connect), scale, threads=1, pause=0.05)
        load.start()
        cluster.apply(workload.replicator(SPACE, tables={"include": ["shop.*"]}))
        watch(cluster, "replicator/shop", "InitialSnapshotCompleted", say)
        name = f"orders-again-{int(time.time())}"
        cluster.apply(workload.snapshot_request(SPACE, name, ["shop.orders"], chunkRows=5000))
        watch(cluster, f"snapshotrequest/{name}", "Complete", say)
        load.stop()
        say(f"load stopped after {load.transactions} transactions")
        verdict(cluster, connect, say)


def _password(cluster: Cluster) -> str:
    template = "go-template={{.data.password | base64decode}}"
    return cluster.kubectl("-n", SPACE, "get", "secret", "shop-db", "-o", template)


def watch(cluster: Cluster, what: str, kind: str, say: Say, pause: float = 5) -> None:
    """Show the resources every few seconds until a condition is true; fails where only manual action helps."""
    resource, _, name = what.partition("/")
    say(f"waiting for {kind} of {what}")
    looks: list[str] = []

    def done() -> bool:
        print(cluster.kubectl("-n", SPACE, "get", WATCHED), flush=True)
        found = cluster.get(SPACE, resource, name)
        if condition(found, kind) == "True":
            return True
        looks.append(condition(found, "Stalled"))
        if looks[-3:] == ["True"] * 3:  # not what was true before this start
            raise CommandFailed(f"{what} is stalled: {message(found, 'Stalled')} {AGAIN}")
        return False

    wait_for(f"{kind} of {what}", 900, done, pause)


def verdict(cluster: Cluster, connect: Callable[[], psycopg.Connection], say: Say) -> None:
    """Compare every table row by row; only where this machine sees the volume."""
    if cluster.node is None:
        say("the tables are on the cluster's volume: compare there")
        return
    tables = [f"shop.{name}" for name in shop.TABLES]
    lake = workload.volume_folder(cluster.node, SPACE) / "lake" / "shop"
    with connect() as connection:
        wait_for("source = target", 300, lambda: not compare(connection, tables, lake, "delta"), pause=5)
    say(f"EQUAL, row by row: {', '.join(tables)}")
    print(cluster.kubectl("-n", SPACE, "get", WATCHED))


if __name__ == "__main__":
    sys.exit(main())
