"""`PYTHONPATH=tests:tools python -m support.ddl.replay FILE`: run a script of the DDL fuzzer again."""

import argparse
import sys
import tempfile
from pathlib import Path

import servers
from support.ddl.fork_server import ForkServer
from support.ddl.fuzz import FIX
from support.ddl.in_process import in_process
from support.ddl.script import run
from support.postgres import PostgresServer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m support.ddl.replay", description="Run a script of the fuzzer.")
    parser.add_argument("file", type=argparse.FileType(), help="the script, as a failed test printed it")
    parser.add_argument(
        "--server", type=int, choices=sorted(servers.POSTGRES_VERSIONS), default=18, help="the server's version"
    )
    parser.add_argument("-v", action="store_true", help="print the end of capture's log, too")
    arguments = parser.parse_args()
    lines = [line for line in arguments.file.read().splitlines() if line and not line.startswith("--")]
    fork_server = ForkServer()
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            PostgresServer(arguments.server) as server,
            in_process(server, fork_server, Path(folder), "replay") as one,
        ):
            outcome = run(one, lines, strict=False, fix=FIX)
            print("\n".join(["wrong:", *outcome.wrong, "stopped:", *map(str, outcome.stopped.items())]))
            print("\n".join(["refused:", *outcome.refused]))
            if arguments.v:
                print(one.tail())
    finally:
        fork_server.close()
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main())
