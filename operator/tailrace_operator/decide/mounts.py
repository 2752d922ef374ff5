"""Does every pod that needs a local folder mount it? In a pod, a folder without a volume is the pod's own and ends with
it: the change log would be lost with the driver, and chunk files of an executor would never be seen. Pure."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from tailrace.contract.pod_template import CONTAINER, Json, items
from tailrace.contract.resources import ReplicatorSpec


def unmounted(spec: ReplicatorSpec) -> str:
    """The faults of a spec's local locations, as sentences; empty: none."""
    return " ".join(_faults(spec))


def _faults(spec: ReplicatorSpec) -> Iterator[str]:
    pods = {"driver": spec.driver.pod_template.spec}
    if spec.executors.most:
        pods["executors"] = spec.executors.pod_template.spec
    followed = None if spec.follow is None else spec.follow.location
    driver = {"driver": pods["driver"]}  # no other pod reads what is followed
    places = (("storage", spec.storage.location, pods), ("target", spec.target.location, pods))
    for field, location, needing in (*places, ("follow", followed, driver)):
        parts = urlsplit(location or "")
        lacking = [f"{pod}.podTemplate" for pod, found in needing.items() if not _holds(found, unquote(parts.path))]
        if parts.scheme == "file" and lacking:
            who = "the driver mounts" if field == "follow" else "driver and executors mount"
            rule = f"must be on a persistentVolumeClaim that {who} at the same path"
            have = "has" if len(lacking) == 1 else "have"
            yield f"{field}.location: {location} {rule}; {' and '.join(lacking)} {have} none there."


def _holds(pod: Json, folder: str) -> bool:
    path = PurePosixPath(folder)
    mounts = [m for c in items(pod, "containers") if c.get("name") == CONTAINER for m in items(c, "volumeMounts")]
    around = [m for m in mounts if path.is_relative_to(str(m.get("mountPath")))]
    nearest = max(around, key=lambda m: len(PurePosixPath(str(m.get("mountPath"))).parts), default={})
    claims = {v.get("name") for v in items(pod, "volumes") if "persistentVolumeClaim" in v}
    return nearest.get("name") in claims and not nearest.get("readOnly")
