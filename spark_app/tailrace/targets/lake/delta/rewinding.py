"""Former versions of a Delta table: found by a record of the log, checked, and brought back. For `DeltaTable`."""

import json

from tailrace.changelog.records.terms import RecordNumber
from tailrace.errors import RewindRefused
from tailrace.storage.store import NotFound
from tailrace.targets.api import VersionAt
from tailrace.targets.lake.delta import cleanup as delta_cleanup
from tailrace.targets.lake.delta.commit import Action, adding, removing
from tailrace.targets.lake.delta.direct_log import LogGap
from tailrace.targets.lake.delta.known import KnownVersion
from tailrace.targets.lake.delta.reader import DeltaReader
from tailrace.targets.lake.delta.replay import State
from tailrace.targets.lake.delta.state import StoredDomain
from tailrace.targets.lake.files.access import FileAccess
from tailrace.targets.lake.model import OTHER_CUT


def version_before(reader: DeltaReader, at: KnownVersion, record: RecordNumber) -> VersionAt | None:
    """The newest version before `at` that holds no more than the record; None: it is gone."""
    of_this = at.stored.applied.generation, at.stored.applied.table_id
    for version in range(at.snapshot.version - 1, -1, -1):
        try:
            stored = reader.stored_by(version)
        except (LogGap, NotFound):
            return None
        if stored is None:
            continue  # another program's compaction
        if (stored.applied.generation, stored.applied.table_id) != of_this:
            return None
        if stored.applied.applied_record <= record:
            return VersionAt(version, stored.applied)
    return None


def former_version(
    reader: DeltaReader, access: FileAccess, location: str, name: str, *, at: KnownVersion, version: int
) -> tuple[State, StoredDomain]:
    """The version, which can be brought back; raises the reason why it cannot."""
    read = reader.log.read(version)
    if at.snapshot.delta is not None:
        raise RewindRefused(f"{name}: its log has features of Delta that Tailrace does not write", OTHER_CUT)
    state = None if read is None or read.version != version else read.state
    stored = None if state is None else reader.stored(name, state)
    if state is None or stored is None:
        raise RewindRefused(f"{name}: version {version} is gone", OTHER_CUT)
    if state.metadata["schemaString"] != at.snapshot.metadata["schemaString"]:
        raise RewindRefused(f"{name}: its columns have changed since version {version}", OTHER_CUT)
    files = {path for add in state.files for path in delta_cleanup.files_of(add, location)}
    lost = next((path for path in sorted(files) if not access.exists(path)), None)
    if lost is not None:
        raise RewindRefused(f"{name}: version {version} lacks {lost}", OTHER_CUT)
    return state, stored


def coming_back(at: KnownVersion, state: State, now_ms: int) -> tuple[list[Action], list[Action]]:
    """The actions, and of them the files that go: files that the version has and the present one lacks come back, those
    that it lacks go; files of both are not named."""
    present, past = (
        {_identity(add): add for add in adds} for adds in ([file.add for file in at.live.values()], state.files)
    )
    going = removing([add for identity, add in present.items() if identity not in past], now_ms)
    coming = adding([add for identity, add in past.items() if identity not in present])
    return [*going, *coming], [action["remove"] for action in going]


def _identity(add: Action) -> tuple[str, str]:
    """A file under one vector."""
    return add["path"], json.dumps(add.get("deletionVector") or None, sort_keys=True)
