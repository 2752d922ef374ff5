"""The followers of a change log whose Replicator is deleted: named before anything is touched. What reads the log loses
it with the data; without the data it keeps what there is, and gets nothing new.
"""

import time
from collections.abc import Iterable, Iterator, Sequence

from tailrace.changelog.followers import FollowerLease, lease_path, leases
from tailrace.errors import SourceRefused
from tailrace.sources.api import RemovalStep
from tailrace.storage.store import Storage


def held(storage: Storage) -> tuple[FollowerLease, ...]:
    """Those for which the log is kept."""
    now = int(time.time() * 1_000_000)
    return tuple(lease for lease in leases(storage) if not lease.is_old(now))


def refusal(storage: Storage, found: Sequence[FollowerLease]) -> SourceRefused:
    names, files = _listed(lease.name for lease in found), _listed(storage.uri(lease_path(v.log_id)) for v in found)
    verb = "follows" if len(found) == 1 else "follow"
    return SourceRefused(
        f"{names} {verb} the change log at {storage.root}, which would be deleted: nothing has been touched",
        f"Delete {names} first (`tailrace drop`; in Kubernetes, the Replicator), or keep the change log: leave out"
        f" --data (deletionPolicy: Retain). Of a follower that no longer exists, delete the lease: {files}.",
    )


def left(found: Iterable[FollowerLease]) -> Iterator[RemovalStep]:
    """Steps that name them, of a log that stays."""
    for lease in found:
        what = f"change log of {lease.name}, which follows this one"
        yield RemovalStep(what, "kept", "it gets no changes until a Replicator continues with this one")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
