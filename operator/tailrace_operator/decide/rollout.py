"""The roll-out of a new default image to many drivers: a few at a time. Pure.

An upgrade of the operator brings a new image for every spec that names none, and would restart all drivers at once:
thousands of connections to sources, and of executors to schedule, in the same minute. So each waits for its turn
(`handlers.turns` gives it), and meanwhile everything is decided as if the image that runs were the default still. A
change of a spec, Secret or ConfigMap waits for nothing, and takes the new image with it.
"""

from collections.abc import Iterable
from dataclasses import replace

from tailrace_operator.decide.model import Desired, Limits
from tailrace_operator.observe.model import Child, ObservedReplicator
from tailrace_operator.resources import hashing, names
from tailrace_operator.status import times
from tailrace_operator.status.conditions import Claim, Readiness, Reason

TYPE = "RolloutPending"
MOVING = {Reason.STARTING, Reason.DRIVER_STARTING, Reason.ROLLING_OUT, Reason.POD_PENDING, Reason.IMAGE_PULL_FAILED}
"""A restart is under way. With any other reason it has worked, or has failed: for neither do others wait."""
LONGEST_SECONDS = 600.0
"""A pod that no node takes holds up the others for this long."""


def hold(observed: ObservedReplicator, desired: Desired) -> Desired:
    """The desired state until it is this driver's turn: with the image that runs."""
    child = observed.children.get(f"StatefulSet/{names.driver(observed.meta.name)}")
    if child is None or not _only_the_image(desired, child):
        return desired
    if observed.turn or observed.status.rollout_since is not None:
        return replace(desired, rolls=True)
    return replace(desired, image=child.image, template_hash=child.template_hash, waits_for=desired.image)


def _only_the_image(desired: Desired, child: Child) -> bool:
    """True if the default image is the only change that would restart it."""
    spec = desired.spec
    if spec is None or spec.image or spec.suspend or desired.template_hash is None:
        return False
    if child.image in ("", desired.image):
        return False
    return hashing.template_hash(spec, child.image, desired.hashes) == child.template_hash


def since(observed: ObservedReplicator, desired: Desired, readiness: Readiness) -> str | None:
    """The time at which the restart for the default image began that is under way; None: there is none."""
    begun = observed.status.rollout_since or (times.text(observed.now) if desired.rolls else None)
    if begun is None or readiness.reason not in MOVING:
        return None
    if readiness.reason is Reason.IMAGE_PULL_FAILED:
        return begun  # the others have the same image: as long as they wait, they run
    return begun if observed.now - (times.seconds(begun) or 0.0) < LONGEST_SECONDS else None


def claims(desired: Desired, limits: Limits) -> Iterable[Claim]:
    """Present only while it waits."""
    if desired.waits_for is not None:
        text = f"image {desired.waits_for} waits; at most {limits.rollout} drivers restart at a time."
        yield Claim(TYPE, "True", Reason.WAITING_FOR_TURN, text)
