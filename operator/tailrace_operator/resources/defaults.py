"""An installation's defaults for the pods of all its Replicators. Pure.

The operator's command line provides them; drivers, executors and clean-up are rendered with them. A Replicator's own
settings override them, and they are no part of a template's hash: like any other change of the operator they restart
nothing, and reach a driver with its next pod.
"""

from typing import Annotated, TypeVar

from pydantic import Field

from tailrace.contract.base import Model, Name
from tailrace.contract.pods import Annotations, Labels, Pod, Toleration
from tailrace.contract.resources import ReplicatorSpec

OfPod = TypeVar("OfPod", bound=Pod)


class PodDefaults(Model):
    """Defaults of driver, executor and clean-up pods."""

    fixed_user: bool = True
    """Run as the user of Spark's images. Unset: as the user that the cluster assigns (OpenShift)."""
    image_pull_secrets: tuple[Name, ...] = ()
    """Secrets in each Replicator's namespace, in addition to its own."""
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
    node_selector: Labels = Field(default_factory=dict)
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=50)] = ()
    """Tolerations in addition to the pod's own."""

    def under(self, spec: ReplicatorSpec) -> ReplicatorSpec:
        """The spec with these where it says nothing else."""
        more = tuple(name for name in self.image_pull_secrets if name not in spec.image_pull_secrets)
        update = {
            "image_pull_secrets": (*spec.image_pull_secrets, *more),
            "driver": self._pod(spec.driver),
            "executors": self._pod(spec.executors),
        }
        return spec.model_copy(update=update)

    def _pod(self, pod: OfPod) -> OfPod:
        update = {
            "labels": {**self.labels, **pod.labels},
            "annotations": {**self.annotations, **pod.annotations},
            "node_selector": {**self.node_selector, **pod.node_selector},
            "tolerations": (*pod.tolerations, *(t for t in self.tolerations if t not in pod.tolerations)),
        }
        return pod.model_copy(update=update)


NO_DEFAULTS = PodDefaults()
