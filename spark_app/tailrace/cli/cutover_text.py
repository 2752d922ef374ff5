"""The report of `tailrace cutover` as people read it: what to do next."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tailrace.contract.driver import CutoverReport


def lines(report: CutoverReport, files: Sequence[Path]) -> Iterator[str]:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.at))
    yield f"{len(report.tables)} tables are in {report.target} as they were in {report.source} at {report.position}"
    for counter in report.counters:
        yield f"  {counter.name} continues with {counter.next}"
    manifest = " ".join(f"-f {path}" for path in files)
    yield f"the replication into them ended at {at}. What to do now:"
    yield f"  1. `tailrace drop {manifest}` (slot and publication; the tables stay), once `tailrace run` has ended"
    yield "  2. if you may want to go back: start the Replicator of the other direction (docs/cutover.md)"
    yield f"  3. let the programs write to {report.target}; keep {report.source} read-only"
