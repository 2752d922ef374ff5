"""`make bench`: every stage against a ceiling and an incumbent, in one run on one machine; prints one table.

    PYTHONPATH=tools python -m bench [--scale 1.0] [--stages capture,latency,snapshot,mysql,apply] [--json FILE]

One JVM at a time. Sizes at scale 1: capture 1 M rows, snapshot 2 M rows, apply into tables of 4 M rows. What the
figures mean, and what bounds each stage: docs/performance.md.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from . import apply, capture, latency, mysql, session, snapshot, source
from .measure import Result, machine, save, table

Say = Callable[[str], None]
STAGES = ("capture", "latency", "snapshot", "mysql", "apply")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes")
    parser.add_argument("--stages", default=",".join(STAGES), help="some of them, with commas")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    stages = options.stages.split(",")
    unknown = set(stages) - set(STAGES)
    if unknown:
        parser.error(f"unknown stage {sorted(unknown)[0]!r}; they are {', '.join(STAGES)}")
    begun = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {what}", file=sys.stderr, flush=True)

    say(machine())
    results: list[Result] = []
    try:
        with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as folder:
            measure(results, Path(folder), options.scale, stages, say)
    finally:  # a stage that fails does not take the others' figures with it
        print(table(results))
        print(f"\nscale {options.scale}, {time.monotonic() - begun:.0f} s in all; {machine()}")
        if options.json:
            save(options.json, results)
    return 0


def measure(results: list[Result], folder: Path, scale: float, stages: list[str], say: Say) -> None:
    """Stages without this process's JVM first; each adds to `results`."""
    if "mysql" in stages:
        say("MySQL: capture and snapshot")
        with mysql.server() as other:
            results += mysql.run(other, folder / "mysql", scale)
    with source.server() as server:
        if "capture" in stages:
            say("capture")
            results += capture.run(server, folder, scale)
        if "latency" in stages:
            say("end to end")
            results += latency.run(server, folder / "latency", scale)
        if "snapshot" in stages:
            say("snapshot")
            results += snapshot.run(server, folder, scale)
        if "snapshot" in stages or "apply" in stages:
            spark = session.start(source.replicator(server, folder.as_uri(), snapshot.TABLE), folder)
        if "snapshot" in stages:
            say("snapshot: Spark JDBC")
            results.append(snapshot.jdbc(spark, server, folder, int(snapshot.ROWS * scale)))
    if "apply" in stages:
        say("apply")
        apply.run(results, spark, folder, scale, say)


if __name__ == "__main__":
    sys.exit(main())
