"""The places of a Replicator, tried before anything is made: apart from each other, and writable.

Called by the driver at each start, so that faults that require manual action are reported in seconds, and by
`tailrace doctor`, which reports the same. Nothing is left behind.
"""

import logging
import os
from pathlib import Path

from tailrace import targets
from tailrace.contract.resources import ReplicatorSpec, StorageSpec, TargetSpec
from tailrace.errors import InvalidManifest, Retry
from tailrace.storage.access import Access, resolve
from tailrace.storage.probe import probe

log = logging.getLogger(__name__)


def require(spec: ReplicatorSpec) -> None:
    """Raises the faults that require manual action. A store that cannot be reached just now is none of that: it is
    warned of, and who needs it tries again."""
    require_apart(spec)
    for subject, config in (("storage", spec.storage), ("target", spec.target)):
        try:
            examine(config)
        except Retry as error:
            log.warning("%s could not be probed: %s", subject, error)


def examine(config: StorageSpec | TargetSpec) -> bool:
    """True if the place returns what is written to it. A change log needs exclusive creation, too."""
    return targets.open(config).examine() if isinstance(config, TargetSpec) else probe(config, exclusive=True)


def require_apart(spec: ReplicatorSpec) -> None:
    """Target and change log each have a folder of their own: what tidies one would meet the other's files."""
    target = targets.open(spec.target)
    if target.folder is None:
        return
    one, other = _parts(target.folder), _parts(resolve(spec.storage, os.environ))
    common = min(len(one), len(other))
    if one[:common] == other[:common]:
        how = "are the same folder" if len(one) == len(other) else "are nested"
        raise InvalidManifest(
            f"target.location {target.place} and storage.location {spec.storage.location} {how}",
            "Give each its own folder, side by side.",
        )


def _parts(access: Access) -> tuple[str, ...]:
    """A place as a path from its root down; links in a local path are followed."""
    prefix = str(Path(access.prefix or "/").resolve()) if access.scheme == "file" else access.prefix
    return access.scheme, access.endpoint or "", access.bucket, *filter(None, prefix.split("/"))
