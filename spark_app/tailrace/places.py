"""The places of a Replicator, opened once from its spec and handed to its users: source, target and change log.

The driver and `tailrace doctor` check target and change log before anything is created: they must be separate, and
writable. So faults that require manual action are reported in seconds. Nothing is left behind.
"""

import logging
import os
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tailrace import sources
from tailrace.contract.places import StorageLocation
from tailrace.contract.resources import ReplicatorSpec
from tailrace.errors import InvalidManifest, Retry, TailraceError, TargetRefused
from tailrace.sources.api import Source
from tailrace.storage.access import Access, resolve
from tailrace.storage.probe import probe
from tailrace.storage.store import Storage

if TYPE_CHECKING:
    from tailrace.targets.api import Target

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Places:
    """Each is opened when it is first asked for, so that the fault of one does not hide another's."""

    spec: ReplicatorSpec
    who: str = "tailrace"
    """The name that the source shows for our connections."""
    secrets: Path | None = None

    @cached_property
    def source(self) -> Source:
        return sources.of_replicator(self.spec, self.who, self.secrets)

    @cached_property
    def target(self) -> "Target":
        from tailrace import targets  # brings pyspark, which those that ask the source alone do without

        return targets.open(self.spec.target, self.spec.source.type, keeps_rows=not self.spec.snapshot.initial)

    @cached_property
    def storage(self) -> Storage:
        """The change log's."""
        return Storage.open(self.spec.storage)

    def require(self) -> None:
        """Raises the faults that require manual action. A store that cannot be reached at the moment only causes a
        warning: it is tried again when it is needed."""
        self.require_apart()
        for subject in ("storage", "target"):
            try:
                self.examine(subject)
            except Retry as error:
                log.warning("%s could not be probed: %s", subject, error)
        try:
            self.require_other_database()
        except TargetRefused:
            raise
        except TailraceError as error:  # capture and the tables will tell
            log.debug("source and target could not be compared: %s", error)

    def examine(self, subject: Literal["storage", "target"]) -> bool:
        """True if the place returns what is written to it. A change log needs exclusive creation, too."""
        return self.target.examine() if subject == "target" else probe(self.spec.storage, exclusive=True)

    def require_other_database(self) -> None:
        """The target is not the source: by identity, as one server has many addresses."""
        spec = self.spec
        if not spec.target.is_database or spec.target.type != spec.source.type:
            return
        with self.source.session() as session:
            source = session.database_id()
        if source is not None and source == self.target.database_id():
            raise TargetRefused(
                f"target and source are the same database: {spec.source.address} and {spec.target.place} are {source}",
                "Name another database as the target. A server made from a copy of the source's files has its identity"
                " as well: use one that was initialised by itself.",
            )

    def require_apart(self) -> None:
        """Target and change logs must each have a separate folder: the clean-up of one would delete the files of the
        other."""
        spec, target = self.spec, self.target
        given = {"storage.location": spec.storage, "follow.location": spec.follow}
        places = {f"{name} {place.location}": self._access(place) for name, place in given.items() if place is not None}
        if target.folder is not None:
            places = {f"target.location {target.place}": target.folder, **places}
        for (one, here), (other, there) in combinations(places.items(), 2):
            parts, others = _parts(here), _parts(there)
            common = min(len(parts), len(others))
            if parts[:common] == others[:common]:
                how = "are the same folder" if len(parts) == len(others) else "are nested"
                raise InvalidManifest(f"{one} and {other} {how}", "Give each its own folder, side by side.")

    @staticmethod
    def _access(place: StorageLocation) -> Access:
        return resolve(place, os.environ)


def _parts(access: Access) -> tuple[str, ...]:
    """A place as a path from its root down; links in a local path are followed."""
    prefix = str(Path(access.prefix or "/").resolve()) if access.scheme == "file" else access.prefix
    return access.scheme, access.endpoint or "", access.bucket, *filter(None, prefix.split("/"))
