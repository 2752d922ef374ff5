"""The leases of followers: change logs that are written from this one's records instead of from the source's log.

A follower keeps one file in the storage of the log that it reads, the only thing that it writes there, and deletes it
when it is deleted. Retention keeps what a lease still needs, unless the lease is old: a follower that is gone must not
fill the storage. What was removed meanwhile the follower finds missing (`PositionLost`).
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError

from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.errors import Retry
from tailrace.storage.store import NotFound, Storage

log = logging.getLogger(__name__)
FOLLOWERS = "followers/"
SUFFIX = ".json"
LEASE_DAYS = 7
LEASE_AGE = LEASE_DAYS * 86_400_000_000
"""Microseconds after which a lease that was not renewed counts for nothing."""
SILENT = 300_000_000
"""Microseconds after which a follower that should renew its lease every ten seconds is told to be silent."""


class FollowerLease(BaseModel):
    """The progress of one follower in the log that it reads. The follower's version may be a later one: fields that are
    not known here are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    log_id: str
    """The id of the follower's own change log."""
    name: str
    """Its owner, as its change log names it."""
    record: RecordNumber
    """The last record of the followed log that the follower's own log holds."""
    seq: Seq
    """The last sequence of that record."""
    written_at: int
    """Microseconds since the Unix epoch: in the file by the follower's clock, as it is read by the storage's."""

    def is_old(self, now: int) -> bool:
        return now - self.written_at > LEASE_AGE


@dataclass(frozen=True)
class LeaseFile:
    """A file where a lease should be."""

    uri: str
    lease: FollowerLease | None
    """None: it cannot be parsed."""
    changed: int
    """Microseconds since the Unix epoch, by the storage's clock: a follower whose clock is wrong must hold no less, and
    no more."""

    @property
    def name(self) -> str:
        """The follower."""
        return f"the follower of the unreadable lease {self.uri}" if self.lease is None else self.lease.name

    def is_old(self, now: int) -> bool:
        return now - self.changed > LEASE_AGE

    def is_silent(self, now: int) -> bool:
        """The log is kept for one that may be gone."""
        return SILENT < now - self.changed <= LEASE_AGE


@dataclass(frozen=True)
class FollowersNeed:
    """The part of the log that followers still need."""

    seq: Seq | None = None
    """The first sequence; None: there is no follower."""
    record: RecordNumber | None = None
    """The first record."""


def lease_path(log_id: str) -> str:
    return f"{FOLLOWERS}{log_id}{SUFFIX}"


def write_lease(storage: Storage, lease: FollowerLease) -> None:
    storage.put(lease_path(lease.log_id), lease.model_dump_json().encode())


def remove_lease(storage: Storage, log_id: str) -> bool:
    """Returns whether there was one."""
    found = storage.exists(lease_path(log_id))
    storage.delete(lease_path(log_id))
    return found


def leases(storage: Storage) -> Iterator[FollowerLease]:
    """All that can be read."""
    return (found.lease for found in lease_files(storage) if found.lease is not None)


def needed(storage: Storage, now: int) -> FollowersNeed:
    """The part that retention has to keep. `Retry` while a lease that may count cannot be read."""
    found: list[FollowerLease] = []
    for file in lease_files(storage):
        if file.lease is not None:
            found.append(file.lease)
        elif not file.is_old(now):
            raise Retry(
                f"{file.uri} is no lease that can be read: what its follower needs is not known",
                "If there is no such follower, delete the file.",
            )
    return followers_need(found, now)


def lease_files(storage: Storage) -> Iterator[LeaseFile]:
    """All of them, also those that cannot be parsed: they count, too."""
    for uri, seconds in sorted(found for found in storage.aged(FOLLOWERS) if found[0].endswith(SUFFIX)):
        changed = int(seconds * 1_000_000)
        try:
            lease = FollowerLease.model_validate_json(storage.get(uri))
        except NotFound:
            continue
        except ValidationError:
            yield LeaseFile(uri, None, changed)
        else:
            yield LeaseFile(uri, lease.model_copy(update={"written_at": changed}), changed)


def followers_need(found: Iterable[FollowerLease], now: int) -> FollowersNeed:
    """The part that the leases hold, without old ones."""
    valid = [lease for lease in found if not lease.is_old(now)]
    if not valid:
        return FollowersNeed()
    return FollowersNeed(Seq(min(v.seq for v in valid) + 1), RecordNumber(min(v.record for v in valid) + 1))
