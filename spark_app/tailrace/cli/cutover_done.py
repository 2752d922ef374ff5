"""A replication that a cutover has ended, for `tailrace status` where no driver runs: the target keeps the report."""

import time
from collections.abc import Iterator
from pathlib import Path

from tailrace.contract.driver import CutoverReport
from tailrace.contract.manifest import Manifest
from tailrace.driver.asking import cutover_report
from tailrace.errors import CutOver
from tailrace.places import Places


def lines_of(manifest: Manifest, name: str, secrets: Path | None) -> list[str]:
    """Empty: there was no cutover, or nobody can say."""
    replicator = next((one for one in manifest.replicators if one.metadata.name == name), None)
    if replicator is None:
        return []
    report = cutover_report.found(Places(replicator.spec, "tailrace status", secrets))
    return [] if report is None else list(_lines(name, report))


def _lines(name: str, report: CutoverReport) -> Iterator[str]:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.at))
    yield f"{name}  Succeeded"
    yield f"CutOver at {at}: programs may write to {report.target}"
    yield CutOver.usual_fix
