"""The settings of the driver's and the executors' pods: the size of the JVM in them, and a template for the rest.

Read by the operator when it builds the StatefulSet and the executors' pod template; `tailrace run` uses `cores` and
`memory` of the driver and ignores the rest.
"""

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from tailrace.contract.base import MemorySize, Model, rules
from tailrace.contract.pod_template import PodTemplate
from tailrace.contract.units import size

CpuAmount = Annotated[str, StringConstraints(max_length=8, pattern=r"^[1-9][0-9]*m?$")]

LEAST_MEMORY = 512 << 20
"""Bytes. Spark refuses to start in less than 450 MiB."""
LEAST_OVERHEAD = 384 << 20
"""Bytes, as Spark's own."""
_LITTLE = "Spark needs memory of at least 512Mi: write 512Mi or more"
_ENOUGH = "!self.endsWith('Mi') || int(self.substring(0, self.size() - 2)) >= 512"


def _enough(memory: str) -> str:
    if size(memory) < LEAST_MEMORY:
        raise ValueError(_LITTLE)
    return memory


def _milli(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000


def _milli_rule(field: str) -> str:
    """The rule of `_milli` as the API server checks it."""
    amount = f"self.{field}"
    return f"({amount}.endsWith('m') ? int({amount}.substring(0, {amount}.size() - 1)) : int({amount}) * 1000)"


_CPU_LIMIT = "cpuLimit must not be less than cpuRequest, or cores where that is unset"


_CPU_RULE = (
    f"!has(self.cpuLimit) || {_milli_rule('cpuLimit')} >="
    f" (has(self.cpuRequest) ? {_milli_rule('cpuRequest')} : self.cores * 1000)",
    _CPU_LIMIT,
)


class Pod(Model):
    """Settings of driver and executor pods. Outside Kubernetes only `cores` and `memory` of the driver are used."""

    model_config = rules(_CPU_RULE)

    cores: Annotated[int, Field(ge=1, le=256)] = 1
    """CPU cores: tasks at the same time, and the container's CPU request unless `cpuRequest` is set."""
    cpu_request: CpuAmount | None = None
    """CPU request of the container (`500m`, `2`), for nodes that cannot spare `cores`; unset: `cores`."""
    cpu_limit: CpuAmount | None = None
    """Maximum CPU of the container (`2`, `1500m`), for namespaces that demand one; unset: none. A limit makes the JVM
    pause."""
    memory: Annotated[
        MemorySize,
        AfterValidator(_enough),
        Field(json_schema_extra={"x-kubernetes-validations": [{"rule": _ENOUGH, "message": _LITTLE}]}),
    ] = "2Gi"
    """Memory of the JVM (`512Mi`, `2Gi`), at least 512Mi."""
    memory_overhead: MemorySize | None = None
    """Memory of the container beside the JVM's: Python, capture, buffers. Unset: two fifths of `memory`, at least
    384Mi."""
    scratch: MemorySize = "50Gi"
    """Maximum size of each scratch volume of the pod (`20Gi`): Spark's shuffles and spills; in the driver also large
    transactions that are still open in the source and, up to a quarter, indexes of keys. Kubernetes evicts a
    pod that exceeds it, and a new one continues."""
    pod_template: PodTemplate = PodTemplate()
    """A core/v1 PodTemplateSpec, to which the operator adds its own fields: labels, node selector, tolerations,
    affinity, volumes, variables of container `tailrace`, containers beside it. Fields of the operator are refused."""

    @property
    def beside_jvm(self) -> int:
        """Bytes of the container for Python, capture and buffers."""
        if self.memory_overhead is not None:
            return size(self.memory_overhead)
        return max(size(self.memory) * 2 // 5, LEAST_OVERHEAD)

    @model_validator(mode="after")
    def _enough_cpu(self) -> "Pod":
        if self.cpu_limit is not None and _milli(self.cpu_limit) < _milli(self.cpu_request or str(self.cores)):
            raise ValueError(_CPU_LIMIT)
        return self


class DriverPod(Pod):
    """The driver's pod."""

    memory_request: MemorySize | None = None
    """Memory that the node reserves for the container (`1536Mi`, `4Gi`); it may use `memory` and `memoryOverhead` while
    the node has some to spare, and is the first to be evicted when the node runs short. Unset: half of the two, at
    least 1536Mi; never more than both."""


_MOST_OR_FEWER = "executors.min must not be greater than executors.max, or executors.count where that is unset"


class Executors(Pod):
    """The executors' pods. They start when there is work for them (chunks, large batches, Delta's first look at a
    table), and stop after a minute without any."""

    model_config = rules(
        _CPU_RULE, ("!has(self.min) || self.min <= (has(self.max) ? self.max : self.count)", _MOST_OR_FEWER)
    )

    min: Annotated[int, Field(ge=0, le=1000)] = 0
    """Number of executors that run whether or not there is work for them. With 1 or more nothing waits for a pod."""
    max: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Maximum number of executors at the same time; 0: the driver does all the work itself, with its cores and
    memory. Unset: `count`, which is 1 where it was not set."""
    count: Annotated[int, Field(ge=0, le=1000)] = 1
    """The former name of `max`, for existing manifests; ignored where `max` is set."""

    @model_validator(mode="after")
    def _few_enough(self) -> "Executors":
        if self.min > self.most:
            raise ValueError(_MOST_OR_FEWER)
        return self

    @property
    def most(self) -> int:
        """At the same time, whichever name says it."""
        return self.count if self.max is None else self.max
