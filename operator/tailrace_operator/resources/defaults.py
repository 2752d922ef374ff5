"""An installation's defaults for the pods of all its Replicators. Pure.

The operator's command line provides them; drivers, executors and clean-up are rendered with them. A Replicator's own
template overrides them, and they are no part of a template's hash: like any other change of the operator they restart
nothing, and reach a driver with its next pod.
"""

from tailrace.contract.base import Model
from tailrace.contract.pod_template import PodTemplate


class PodDefaults(Model):
    """Defaults of driver, executor and clean-up pods."""

    fixed_user: bool = True
    """Run as the user of Spark's images. Unset: as the user that the cluster assigns (OpenShift)."""
    pod_template: PodTemplate = PodTemplate()
    """The template under each Replicator's own."""


NO_DEFAULTS = PodDefaults()
