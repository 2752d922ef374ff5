"""A source whose log comes out of another Replicator's change log: everything else is asked of the database itself."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from tailrace.changelog.records import Origin
from tailrace.changelog.records.terms import Position
from tailrace.contract.places import StorageLocation
from tailrace.contract.resources import Replicator
from tailrace.sources.api import ChunkReader, Session, Source
from tailrace.sources.followed.subscription import FollowedSubscription
from tailrace.sources.visibility import Visibility


@dataclass(frozen=True)
class FollowedSource:
    database: Source
    follow: StorageLocation

    @property
    def place(self) -> str:
        return self.database.place

    def text(self, position: Position) -> str:
        return self.database.text(position)

    def bound_to(self, origin: Origin) -> "FollowedSource":
        return replace(self, database=self.database.bound_to(origin))

    def session(self) -> AbstractContextManager[Session]:
        return self.database.session()

    def reader(self) -> ChunkReader:
        return self.database.reader()

    @contextmanager
    def subscription(self, replicator: Replicator, root: str) -> Iterator[FollowedSubscription]:
        yield FollowedSubscription(self.database, self.follow, replicator, root)

    def visibility(self, snapshot: str) -> Visibility:
        return self.database.visibility(snapshot)
