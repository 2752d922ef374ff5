"""The place of a follower in the change log that it reads: kept beside the source's position in each of its records."""

from tailrace.changelog.records.terms import Closed, RecordNumber, Seq
from tailrace.errors import CorruptLog

FOLLOWS = "follows"
"""Key of a follower's identity: the id of the change log that it reads. The other keys are that log's own."""


class FollowedPlace(Closed):
    """Everything up to this record is in the follower's own log."""

    record: RecordNumber
    seq: Seq
    """The last sequence of that record."""

    @classmethod
    def of(cls, source_state: str | None) -> "FollowedPlace":
        try:
            return cls.model_validate_json(source_state or "")
        except ValueError as error:
            raise CorruptLog(
                "the change log does not say up to where it has followed the other one",
                "Set storage.location to an empty folder; in Kubernetes, create another Replicator.",
            ) from error
