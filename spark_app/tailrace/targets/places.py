"""The places of a Replicator, tried before anything is made: apart from each other, and writable.

Called by the driver at each start, so that what a person must put right is told in seconds, and by `tailrace doctor`,
which reports the same. Nothing is left behind, no folder either.
"""

import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailrace.contract.resources import ReplicatorSpec, Target
from tailrace.contract.resources import Storage as StorageConfig
from tailrace.errors import InvalidManifest, Retry
from tailrace.storage.access import Access, StorageRefused, hadoop_options, resolve
from tailrace.storage.store import NotFound, Storage
from tailrace.targets.lake.iceberg.catalog import catalog_options

log = logging.getLogger(__name__)
PROBES = "_tailrace_doctor/"
"""Folder of the files that are written to see whether it can be done."""
ROOM = 1 << 20
"""Bytes of such a file on a local file system, where a disk or a quota that is full takes a small one now and then."""


def require(spec: ReplicatorSpec) -> None:
    """Raises what nobody but a person can heal. A store that cannot be reached just now is none of that: it is warned
    of, and who needs it tries again."""
    require_apart(spec)
    for subject, config in (("storage", spec.storage), ("target", spec.target)):
        try:
            probe(config)
        except Retry as error:
            log.warning("%s could not be tried: %s", subject, error)


def require_apart(spec: ReplicatorSpec) -> None:
    """Target and change log each have a folder of their own: what tidies one would meet the other's files."""
    target, storage = resolve(spec.target, os.environ), resolve(spec.storage, os.environ)
    one, other = _parts(target), _parts(storage)
    common = min(len(one), len(other))
    if one[:common] == other[:common]:
        how = "are the same folder" if len(one) == len(other) else "lie one inside the other"
        raise InvalidManifest(
            f"target.location {spec.target.location} and storage.location {spec.storage.location} {how}",
            "Give each a folder of its own, side by side.",
        )


def _parts(access: Access) -> tuple[str, ...]:
    """A place as a path from its root down; links in a local path are followed."""
    prefix = str(Path(access.prefix or "/").resolve()) if access.scheme == "file" else access.prefix
    return access.scheme, access.endpoint or "", access.bucket, *filter(None, prefix.split("/"))


def probe(config: StorageConfig) -> bool:
    """Write a file, read it and remove it; whether it came back as it was written. `StorageRefused`: it cannot be
    done. Exclusive creation is tried where the journal stands on it."""
    name = f"{PROBES}{uuid.uuid4().hex}"
    if isinstance(config, Target):
        _writers(config)
    storage = Storage.open(config, os.environ)
    content = os.urandom(ROOM) if storage.local else b"tailrace"  # zeros may take no room
    with _tidy(storage):
        try:
            storage.create(name, content)
        except NotFound as error:
            raise StorageRefused(f"{storage.root}: no folder can be made there", "Correct the location.") from error
        same = storage.get(name) == content
        storage.delete(name)
        if not isinstance(config, Target):
            storage.require_exclusive(name)
    return same


@contextmanager
def _tidy(storage: Storage) -> Iterator[None]:
    """The folders that had to be made go again."""
    folder = Path(storage.access.prefix) / PROBES
    with storage.errors(PROBES, writing=True):
        made = [path for path in (folder, *folder.parents) if not path.exists()] if storage.local else []
    try:
        yield
    finally:
        for path in made:
            with suppress(OSError):  # somebody else has put something there
                path.rmdir()


def _writers(target: Target) -> None:
    """What Spark will be told of the target, as far as it can be judged without a JVM; nothing is connected to."""
    hadoop_options(target, os.environ)
    if target.type == "iceberg":
        catalog_options(target, os.environ)
