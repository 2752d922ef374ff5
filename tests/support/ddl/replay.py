"""`PYTHONPATH=tests python -m support.ddl.replay FILE`: run a script that the DDL fuzzer told, and judge again."""

import sys
import tempfile
from pathlib import Path

from support.ddl.fuzz import FIX
from support.ddl.nursery import Nursery
from support.ddl.quick import quick
from support.ddl.script import run
from support.postgres import PostgresServer


def main(path: str) -> int:
    lines = [line for line in Path(path).read_text().splitlines() if line and not line.startswith("--")]
    nursery = Nursery()
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            PostgresServer(18) as server,
            quick(server, nursery, Path(folder), "replay") as one,
        ):
            outcome = run(one, lines, strict=False, fix=FIX)
            print("\n".join(["wrong:", *outcome.wrong, "stopped:", *map(str, outcome.stopped.items())]))
            print("\n".join(["refused:", *outcome.refused]))
            if "-v" in sys.argv:
                print(one.tail())
    finally:
        nursery.close()
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
