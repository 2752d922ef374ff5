"""A follower's capture against a second capture of the same tables: CPU for the same changes, and the source's share.

    PYTHONPATH=tools python -m bench.followed [--scale 1.0]

All three run beside each other: the owner, a second reader of the source's log, and a follower of the owner's change
log. CPU of the walsender that decodes for a reader is counted with it: a follower has none. Driver and target are left
out, for they do the same in both. Sizes at scale 1: 200 k single-row transactions, and 1 M rows in one transaction.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from demo.postgres_server import PostgresServer

from . import source
from .capture import Capture, Write, position
from .measure import Result, Watch, machine, table, until

READERS = ("owner", "second capture", "follower")


def _walsenders(server: PostgresServer) -> dict[str, psutil.Process]:
    """Processes by slot."""
    rows = server.execute("SELECT slot_name, active_pid FROM pg_replication_slots WHERE active_pid IS NOT NULL")
    return {str(slot): psutil.Process(pid) for slot, pid in rows}


def _spent(process: psutil.Process | None) -> float:
    return 0.0 if process is None else sum(process.cpu_times()[:2])


def _await(capture: Capture, server: PostgresServer, reader: str) -> None:
    until(lambda: capture.holds(position(server)), f"{reader} captures", pause=1)


def case(server: PostgresServer, folder: Path, name: str, rows: int, write: Write) -> list[Result]:
    """Measures one kind of writing, read by all three."""
    captured = f"public.f_{name}"
    source.create(server, captured)
    place = folder / name
    place.mkdir()
    senders: list[psutil.Process | None] = []
    with ExitStack() as ended:
        captures: list[Capture] = []
        for reader in READERS:
            home = place / reader.replace(" ", "_")
            followed = {"follow": {"location": f"{(place / 'owner').as_uri()}/log"}} if reader == "follower" else {}
            known = set(_walsenders(server))
            capture = Capture(source.replicator(server, home.as_uri(), captured, **followed), home)
            capture.start()
            ended.callback(capture.stop)
            captures.append(capture)
            _await(capture, server, reader)
            new = [process for slot, process in _walsenders(server).items() if slot not in known]
            senders.append(new[0] if new else None)
        before = [_spent(sender) for sender in senders]
        with ExitStack() as watched:
            watches = [watched.enter_context(Watch([capture.process.pid])) for capture in captures]
            write(server, captured, 1, rows)
            high = position(server)
            until(lambda: all(capture.holds(high) for capture in captures), "all have it", pause=0.2)
        spent = [_spent(sender) - old for sender, old in zip(senders, before, strict=True)]
    server.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    server.execute(f"DROP TABLE {captured}")
    for (publication,) in server.execute("SELECT pubname FROM pg_publication"):
        server.execute(f'DROP PUBLICATION "{publication}"')
    return [
        Result(f"follow, {name}", reader, "tailrace", rows, watch.wall, watch.cpu, sender)
        for reader, watch, sender in zip(READERS, watches, spent, strict=True)
    ]


def run(server: PostgresServer, folder: Path, scale: float) -> list[Result]:
    return [
        *case(server, folder, "single_row_transactions", int(200_000 * scale), source.insert_one_by_one),
        *case(server, folder, "one_transaction", int(1_000_000 * scale), source.insert),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.followed", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes")
    options = parser.parse_args(arguments)
    begun = machine()
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder, source.server() as server:
        print(table(run(server, Path(folder), options.scale)))
    print(f"\nscale {options.scale}; {begun} at the beginning; {machine()} at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
