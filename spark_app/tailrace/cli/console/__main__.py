"""The console in a cluster: `python -m tailrace.cli.console`, as the chart runs it.

It needs none of Spark's packages: the operator's image runs it.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tailrace import logs
from tailrace.cli.console.app import ConsoleApp
from tailrace.cli.console.cluster_api import ACCOUNT, ClusterApi
from tailrace.cli.console.cluster_fleet import ClusterFleet
from tailrace.cli.console.serve import listening, serve
from tailrace.errors import InvalidManifest, TailraceError

LEVELS = ("debug", "info", "warning", "error")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    logs.configure("json", options.log_level)
    try:
        opened = listening(options.listen)
        api = ClusterApi(options.api_server or _in_cluster(), options.account)
        print(f"console at port {opened.getsockname()[1]}", flush=True)
        serve(ConsoleApp(ClusterFleet(api, options.namespace, allow_actions=options.allow_actions)), opened)
    except TailraceError as error:
        logs.complain(f"console: {error}")
        return error.exit_code
    return 0


def _in_cluster() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise InvalidManifest("not running in a pod: KUBERNETES_SERVICE_HOST is not set", "Pass --api-server.")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tailrace.cli.console", description="Serve the console of a cluster.")
    made.add_argument("--listen", default="0.0.0.0:8650", metavar="HOST:PORT", help="address (default: 0.0.0.0:8650)")
    made.add_argument(
        "--namespace", action="append", default=[], help="show Replicators of this namespace; may be repeated"
    )
    made.add_argument("--allow-actions", action="store_true", help="carry out actions, with the rights of each token")
    made.add_argument("--account", type=Path, default=ACCOUNT, help="folder with token and ca.crt (default: the pod's)")
    made.add_argument("--api-server", metavar="URL", help="API server (default: the pod's)")
    made.add_argument("--log-level", choices=LEVELS, default="info", help="minimum log level (default: info)")
    return made


if __name__ == "__main__":
    sys.exit(main())
