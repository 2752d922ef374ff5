"""The followers of a change log whose Replicator is deleted: named before anything is touched. What reads the log loses
it with the data; without the data it keeps what there is, and gets nothing new.
"""

import time
from collections.abc import Iterable, Iterator, Sequence

from tailrace.changelog.followers import LeaseFile, lease_files
from tailrace.errors import SourceRefused
from tailrace.sources.api import RemovalStep
from tailrace.storage.store import Storage


def held(storage: Storage) -> tuple[LeaseFile, ...]:
    """Those for which the log is kept, also where the lease cannot be read."""
    now = int(time.time() * 1_000_000)
    return tuple(file for file in lease_files(storage) if not file.is_old(now))


def refusal(storage: Storage, found: Sequence[LeaseFile]) -> SourceRefused:
    names, files = _listed(file.name for file in found), _listed(file.uri for file in found)
    verb = "follows" if len(found) == 1 else "follow"
    return SourceRefused(
        f"{names} {verb} the change log at {storage.root}, which would be deleted: nothing has been touched",
        f"Delete {names} first (`tailrace drop`; in Kubernetes, the Replicator), or keep the change log: leave out"
        f" --data (deletionPolicy: Retain). Of a follower that no longer exists, delete the lease: {files}.",
    )


def left(found: Iterable[LeaseFile]) -> Iterator[RemovalStep]:
    """Steps that name them, of a log that stays."""
    for file in found:
        what = f"change log of {file.name}, which follows this one"
        yield RemovalStep(what, "kept", "it gets no changes until a Replicator continues with this one")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
