"""A replication that a cutover has ended, for `tailrace status` where no driver runs: the target keeps the report."""

import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from tailrace.changelog.journal import JournalReader
from tailrace.contract.driver import CutoverReport
from tailrace.contract.manifest import Manifest
from tailrace.contract.resources import Replicator
from tailrace.errors import CutOver, TailraceError
from tailrace.places import Places


def lines_of(manifest: Manifest, name: str, secrets: Path | None) -> list[str]:
    """Empty: there was no cutover, or nobody can say."""
    found = next((one for one in manifest.replicators if one.metadata.name == name), None)
    report = None if found is None else _report(found, secrets)
    return [] if report is None else list(_lines(name, report))


def _report(replicator: Replicator, secrets: Path | None) -> CutoverReport | None:
    if not replicator.spec.target.is_database:
        return None
    try:
        places = Places(replicator.spec, "tailrace status", secrets)
        origin, handover = JournalReader.open(places.storage).state.origin, places.target.handover()
        done = None if origin is None or handover is None else handover.done(origin.log_id)
    except TailraceError:
        return None  # that no driver runs is the answer then
    try:
        return None if done is None else CutoverReport.model_validate_json(done)
    except ValidationError:
        return None  # of a later version


def _lines(name: str, report: CutoverReport) -> Iterator[str]:
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.at))
    yield f"{name}  Succeeded"
    yield f"CutOver at {at}: programs may write to {report.target}"
    yield CutOver.usual_fix
