"""The place of a follower in the change log that it reads: kept beside the source's position in each of its records."""

from tailrace.changelog.records import Record
from tailrace.changelog.records.terms import Closed, RecordNumber, Seq
from tailrace.changelog.state import LogState
from tailrace.errors import CorruptLog

FOLLOWS = "follows"
"""Key of a follower's identity: the id of the change log that it reads. The other keys are that log's own."""


class FollowedPlace(Closed):
    """Everything up to this record is in the follower's own log."""

    record: RecordNumber
    seq: Seq
    """The last sequence of that record."""
    epoch: int | None = None
    """The writer that wrote it, with its nonce. None: not noted, by a former version."""
    nonce: str | None = None

    @classmethod
    def behind(cls, there: Record | LogState) -> "FollowedPlace":
        """The place behind this record, or behind the newest one of a log."""
        return cls(record=there.number, seq=there.last_seq, epoch=there.epoch, nonce=there.nonce)

    def contradicts(self, there: Record) -> bool:
        """Returns whether this record (of the same number, or a later one) is of another past than was followed."""
        if self.epoch is None or self.nonce is None:
            return False
        if there.epoch == self.epoch:
            return there.nonce != self.nonce
        return there.epoch < self.epoch or there.number == self.record

    @classmethod
    def of(cls, source_state: str | None) -> "FollowedPlace":
        try:
            return cls.model_validate_json(source_state or "")
        except ValueError as error:
            raise CorruptLog(
                "the change log does not say up to where it has followed the other one",
                "Set storage.location to an empty folder; in Kubernetes, create another Replicator.",
            ) from error
