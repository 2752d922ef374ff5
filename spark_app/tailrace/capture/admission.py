"""The check that this Replicator may use this change log; each refusal is an error.

`startup` asks before it takes anything over, `tailrace doctor` asks the same without taking anything over, and
`tailrace resync --all` asks for the owner before it leaves its note.
"""

from tailrace.changelog.records import Origin
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.errors import SourceRefused
from tailrace.sources.followed.place import FOLLOWS


def check_owner(replicator: Replicator, root: str, owner: str) -> None:
    """A copied manifest must not take a stream over: the log goes to its owner, to the one that its owner released it
    to, or to the one that names the former owner."""
    if not ownership.goes_to(owner, replicator):
        raise _foreign(replicator, root, owner)


def check_manifest(replicator: Replicator, root: str, owner: str) -> None:
    """Makes the same check for a command: the manifest that it reads may be the one that was applied in Kubernetes,
    without uid."""
    if not ownership.may_go_to(owner, replicator):
        raise _foreign(replicator, root, owner)


def _foreign(replicator: Replicator, root: str, owner: str) -> SourceRefused:
    return SourceRefused(
        f"the change log at {root} belongs to Replicator {owner!r}, this is {ownership.owner(replicator)!r}",
        "Give this Replicator its own storage.location (in Kubernetes, create another Replicator). If it replaces that"
        " Replicator, and that one no longer runs,"
        f" set storage.adopt to {owner!r}.",
    )


def check_product(replicator: Replicator, origin: Origin) -> None:
    """A change log of another product says nothing about this source."""
    if origin.source != replicator.spec.source.type:
        raise SourceRefused(
            f"the change log belongs to a {origin.source} source, the manifest names {replicator.spec.source.type}",
            "A new source needs a new change log: set storage.location to an empty folder; in Kubernetes, create"
            " another Replicator.",
        )
    follows = FOLLOWS in origin.identity
    if follows != (replicator.spec.follow is not None):
        made = "follows another one" if follows else "was read from the source"
        change = "Set" if follows else "Remove"
        raise SourceRefused(
            f"the change log {made}, the manifest says otherwise",
            f"{change} follow, or set storage.location to an empty folder; in Kubernetes, create another Replicator.",
        )
