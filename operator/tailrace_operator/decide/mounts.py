"""Does every pod that needs a local folder mount it? In a pod, a folder without a volume is the pod's own and ends with
it: the change log would be lost with the driver, and chunk files of an executor would never be seen. Pure."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from tailrace.contract.pods import Volume
from tailrace.contract.resources import ReplicatorSpec


def unmounted(spec: ReplicatorSpec) -> str:
    """The faults of a spec's local locations, as sentences; empty: none."""
    return " ".join(_faults(spec))


def _faults(spec: ReplicatorSpec) -> Iterator[str]:
    pods = {"driver": spec.driver.volumes}
    if spec.executors.most:
        pods["executors"] = spec.executors.volumes
    for field, location in (("storage", spec.storage.location), ("target", spec.target.location)):
        parts = urlsplit(location)
        lacking = [f"{pod}.volumes" for pod, found in pods.items() if not _holds(found, unquote(parts.path))]
        if parts.scheme == "file" and lacking:
            rule = "must be on a persistentVolumeClaim that driver and executors mount at the same path"
            yield f"{field}.location: {location} {rule}; {' and '.join(lacking)} have none there."


def _holds(volumes: Iterable[Volume], folder: str) -> bool:
    path = PurePosixPath(folder)
    around = [v for v in volumes if path.is_relative_to(v.mount_path)]
    nearest = max(around, key=lambda v: len(PurePosixPath(v.mount_path).parts), default=None)
    return nearest is not None and nearest.persistent_volume_claim is not None and not nearest.read_only
