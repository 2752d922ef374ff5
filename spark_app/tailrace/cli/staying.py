"""The record at which `tailrace run --stop-at` stays: of a cut, by its number, or by a time."""

from datetime import datetime

from tailrace.changelog import moments
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records.terms import RecordNumber
from tailrace.contract.resources import Replicator
from tailrace.contract.units import zoned_time
from tailrace.errors import InvalidManifest
from tailrace.storage.store import Storage


def record(replicator: Replicator, text: str, once: bool) -> RecordNumber:
    """A cut's name comes first, which may have digits alone, and is never a time with a zone."""
    if once:
        raise InvalidManifest("--stop-at with --once would never end", "Leave one of them out.")
    storage = Storage.open(replicator.spec.storage)
    state = JournalReader.open(storage).state
    if text in state.cuts:
        return state.cuts[text].record
    if text.isascii() and text.isdigit():
        return RecordNumber(int(text))
    moment = zoned_time(text)
    if moment is not None:
        return _of_time(storage, state.number, text, moment)
    few = ", ".join(f"{cut.name} (record {cut.record})" for cut in list(state.cuts.values())[-5:]) or "none"
    raise InvalidManifest(
        f"--stop-at {text[:100]} is no cut, record or time of the change log at {storage.root}",
        f"The newest cuts are: {few}. A time has a zone: 2026-11-28T12:00:00Z.",
    )


def _of_time(storage: Storage, end: RecordNumber, text: str, moment: datetime) -> RecordNumber:
    found = moments.record_at(storage, end, moment)
    if found.record is not None:
        return found.record
    if found.oldest is None or found.newest is None:
        what, fix = "it holds no commits", "Name a cut or a record."
    elif found.newest <= moment.timestamp() * 1e6:
        what = f"its newest commit is of {moments.text(found.newest)}, and others up to that time may still come"
        fix = "Name an earlier time; or start without --stop-at, and make a cut: `tailrace cut`."
    else:
        what, fix = f"what it holds begins at {moments.text(found.oldest)}", "Name a later time."
    raise InvalidManifest(f"--stop-at {text}: the change log at {storage.root} does not tell: {what}", fix)
