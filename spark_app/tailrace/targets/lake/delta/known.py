"""A version of a Delta table as its object remembers it, between reading it and committing on top of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.targets.lake.delta.commit import Action, LiveFile
from tailrace.targets.lake.delta.log import DeltaSnapshot
from tailrace.targets.lake.delta.state import DOMAIN, StoredDomain


@dataclass(frozen=True)
class LogVersion:
    """One version, as far as a commit on top of it needs it."""

    version: int
    protocol: Action
    metadata: Action
    domains: dict[str, str]
    digest: bytes | None = None
    """The digest of the version's file."""
    delta: DeltaSnapshot | None = None
    """Delta's own object where the table is left to Delta."""

    def first_of_log(self, stored: StoredDomain) -> int:
        """The last version whose checkpoint may become the first file of the log. Our own last commit stays: what came
        after it is judged again at the next start. Delta reads on from the checkpoint that it has in memory."""
        return stored.version if self.delta is None else min(stored.version, self.delta.checkpoint())


@dataclass(frozen=True)
class KnownVersion:
    """The facts about the version last read or written."""

    snapshot: LogVersion
    stored: StoredDomain
    live: dict[str, LiveFile]


@dataclass(frozen=True)
class FormerCopy:
    """The facts about a former generation, which is kept until another is complete."""

    generation: int
    last_id: int
    """The highest column id ever used."""
    version: int


def domain(configuration: str) -> Action:
    """The action that carries the applied state."""
    return {"domainMetadata": {"domain": DOMAIN, "configuration": configuration, "removed": False}}


def domain_of(actions: Sequence[Action]) -> str:
    """The applied state among the actions of a commit of Tailrace."""
    (text,) = (
        a["domainMetadata"]["configuration"] for a in actions if a.get("domainMetadata", {}).get("domain") == DOMAIN
    )
    return str(text)
