"""The settings of the driver's and the executors' pods that users may choose, in Kubernetes' own words where it has
them.

Read by the operator when it builds the StatefulSet and the executors' pod template; `tailrace run` uses `cores` and
`memory` of the driver and ignores the rest. Not the whole pod: what the operator sets itself (security, probes,
commands, ports) cannot be overridden here, and no volume reaches the node's own files.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from tailrace.contract.base import MemorySize, Model, Name, rules
from tailrace.contract.units import size

LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=317)]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]
Labels = Annotated[dict[str, LabelValue], Field(max_length=50)]
Annotations = Annotated[dict[str, Annotated[str, StringConstraints(max_length=4096)]], Field(max_length=50)]
VolumeName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
DataKey = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[-._A-Za-z0-9]+$")]
EnvName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
MountPath = Annotated[str, StringConstraints(min_length=2, max_length=256, pattern=r"^/[^:]+$")]

CpuAmount = Annotated[str, StringConstraints(max_length=8, pattern=r"^[1-9][0-9]*m?$")]

RESERVED_LABELS = ("tailrace.dev/", "app.kubernetes.io/", "spark-")
_RESERVED = "labels that begin with tailrace.dev/, app.kubernetes.io/ or spark- are reserved"
_SPARK_ENV = "variables that begin with TAILRACE_SPARK_ are reserved: Spark's settings go to sparkConf"
_ONE_VALUE = "give exactly one of value and valueFrom"
_ONE_VOLUME = "give exactly one of persistentVolumeClaim, configMap, secret and emptyDir"
_VOLUME_NAME = "names of volumes that begin with tailrace- are reserved"
_TAKEN = ("/tmp", "/var/lib/tailrace")
_OPERATORS_PLACE = "/etc/tailrace"
_MOUNT = "mountPath is reserved for the operator: /tmp, /var/lib/tailrace and everything below /etc/tailrace"
_MOUNTED_TWICE = "two volumes have the same mountPath"
_VALUES = "values goes with In, NotIn, Gt and Lt, and not with Exists and DoesNotExist"
_NO_VALUE = "a toleration with operator Exists has no value; one with Equal needs a key"
_SECONDS = "tolerationSeconds goes with effect NoExecute only"
LEAST_MEMORY = 512 << 20
"""Bytes. Spark refuses to start in less than 450 MiB."""
_LITTLE = "Spark needs memory of at least 512Mi: write 512Mi or more"
_ENOUGH = "!self.endsWith('Mi') || int(self.substring(0, self.size() - 2)) >= 512"


class SecretKeyRef(Model):
    """One key of a Secret in the Replicator's namespace."""

    name: Name
    """The Secret."""
    key: DataKey
    """The key in its data."""


class EnvSource(Model):
    """A reference to the value of an environment variable."""

    secret_key_ref: SecretKeyRef
    """A key of a Secret."""


class EnvVar(Model):
    """An environment variable of the container."""

    model_config = rules(
        ("has(self.value) != has(self.valueFrom)", _ONE_VALUE),
        ("!self.name.startsWith('TAILRACE_SPARK_')", _SPARK_ENV),
    )

    name: EnvName
    """The variable. The operator's own variables cannot be changed."""
    value: Annotated[str, StringConstraints(max_length=4096)] | None = None
    """The value."""
    value_from: EnvSource | None = None
    """Take the value from a Secret."""

    @model_validator(mode="after")
    def _one(self) -> "EnvVar":
        if (self.value is None) == (self.value_from is None):
            raise ValueError(_ONE_VALUE)
        if self.name.startswith("TAILRACE_SPARK_"):
            raise ValueError(_SPARK_ENV)
        return self


class ClaimVolume(Model):
    """An existing PersistentVolumeClaim in the Replicator's namespace."""

    claim_name: Name
    """The claim."""


class ConfigMapVolume(Model):
    """A ConfigMap in the Replicator's namespace, one file per key."""

    name: Name
    """The ConfigMap."""


class SecretVolume(Model):
    """A Secret in the Replicator's namespace, one file per key."""

    secret_name: Name
    """The Secret."""


class EmptyDirVolume(Model):
    """Space that lives as long as the pod."""

    medium: Literal["", "Memory"] = ""
    """Empty: the node's disk. `Memory`: counts against the container's memory."""
    size_limit: MemorySize | None = None
    """Maximum size (`10Gi`); unset: no separate limit."""


class Volume(Model):
    """A volume and where it is mounted; exactly one kind."""

    model_config = rules(
        (
            "[has(self.persistentVolumeClaim), has(self.configMap), has(self.secret), has(self.emptyDir)]"
            ".filter(x, x).size() == 1",
            _ONE_VOLUME,
        ),
        ("!self.name.startsWith('tailrace-')", _VOLUME_NAME),
        (f"!(self.mountPath in {list(_TAKEN)}) && !self.mountPath.startsWith('{_OPERATORS_PLACE}')", _MOUNT),
    )

    name: VolumeName
    """Name, unique in the pod. Names that begin with `tailrace-` are the operator's."""
    mount_path: MountPath
    """Absolute path in the container."""
    sub_path: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None
    """Path inside the volume; unset: its root."""
    read_only: bool = False
    """Mount it read-only."""
    persistent_volume_claim: ClaimVolume | None = None
    """An existing claim. Executors on several nodes need access mode ReadWriteMany."""
    config_map: ConfigMapVolume | None = None
    """A ConfigMap as files."""
    secret: SecretVolume | None = None
    """A Secret as files."""
    empty_dir: EmptyDirVolume | None = None
    """Scratch space."""

    @model_validator(mode="after")
    def _one(self) -> "Volume":
        given = (self.persistent_volume_claim, self.config_map, self.secret, self.empty_dir)
        if sum(kind is not None for kind in given) != 1:
            raise ValueError(_ONE_VOLUME)
        if self.name.startswith("tailrace-"):
            raise ValueError(_VOLUME_NAME)
        if self.mount_path in _TAKEN or self.mount_path.startswith(_OPERATORS_PLACE):
            raise ValueError(_MOUNT)
        return self


class Toleration(Model):
    """A taint that the pod may be scheduled onto; Kubernetes' own fields."""

    model_config = rules(
        ("self.operator == 'Exists' ? !has(self.value) : has(self.key)", _NO_VALUE),
        ("!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')", _SECONDS),
    )

    key: LabelKey | None = None
    """The taint's key; unset with `Exists`: every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """`Equal` compares the value, `Exists` does not."""
    value: Annotated[str, StringConstraints(max_length=63)] | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; unset: all."""
    toleration_seconds: Annotated[int, Field(ge=0, le=31_536_000)] | None = None
    """With `NoExecute`: seconds until the pod is evicted anyway; unset: never."""

    @model_validator(mode="after")
    def _whole(self) -> "Toleration":
        if self.value is not None if self.operator == "Exists" else self.key is None:
            raise ValueError(_NO_VALUE)
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError(_SECONDS)
        return self


class NodeRequirement(Model):
    """A condition on a node's labels; Kubernetes' own fields."""

    model_config = rules(
        ("(self.operator in ['Exists', 'DoesNotExist']) == (size(self.values) == 0)", _VALUES),
    )

    key: LabelKey
    """The node's label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """The comparison with the values."""
    values: Annotated[tuple[LabelValue, ...], Field(max_length=100)] = ()
    """Empty with `Exists` and `DoesNotExist`, one number with `Gt` and `Lt`."""

    @model_validator(mode="after")
    def _fits(self) -> "NodeRequirement":
        if (self.operator in ("Exists", "DoesNotExist")) != (not self.values):
            raise ValueError(_VALUES)
        return self


class Affinity(Model):
    """The nodes that a pod may or should run on. A short form of Kubernetes' affinity."""

    required_nodes: Annotated[tuple[NodeRequirement, ...], Field(max_length=20)] = ()
    """A node must meet all of these."""
    preferred_nodes: Annotated[tuple[NodeRequirement, ...], Field(max_length=20)] = ()
    """Nodes that meet more of these are preferred (weight 100 for each)."""
    spread_over: LabelKey | None = None
    """Node label, such as `kubernetes.io/hostname` or `topology.kubernetes.io/zone`: pods of the same Replicator prefer
    nodes that differ in it."""


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
    transactions that are still open in the source. Kubernetes evicts a pod that exceeds it, and a new one continues."""
    labels: Annotated[
        Labels,
        Field(
            json_schema_extra={
                "x-kubernetes-validations": [
                    {
                        "rule": "self.all(k, "
                        + " && ".join(f"!k.startsWith('{prefix}')" for prefix in RESERVED_LABELS)
                        + ")",
                        "message": _RESERVED,
                    }
                ]
            }
        ),
    ] = Field(default_factory=dict)
    """Labels of the pod, in addition to the operator's."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations of the pod."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that the node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=50)] = ()
    """Taints that the pod tolerates."""
    affinity: Affinity = Affinity()
    """The nodes that the pod may or should run on."""
    priority_class_name: Name | None = None
    """PriorityClass of the pod; unset: the cluster's default."""
    volumes: Annotated[
        tuple[Volume, ...],
        Field(
            max_length=20,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-validations": [
                    {
                        "rule": "self.all(v, self.exists_one(w, w.mountPath == v.mountPath))",
                        "message": _MOUNTED_TWICE,
                    }
                ],
            },
        ),
    ] = ()
    """Volumes to mount, in addition to the operator's."""
    env: Annotated[
        tuple[EnvVar, ...],
        Field(
            max_length=100,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = ()
    """Environment variables, in addition to the operator's."""

    @model_validator(mode="after")
    def _names(self) -> "Pod":
        if self.cpu_limit is not None and _milli(self.cpu_limit) < _milli(self.cpu_request or str(self.cores)):
            raise ValueError(_CPU_LIMIT)
        if any(key.startswith(RESERVED_LABELS) for key in self.labels):
            raise ValueError(_RESERVED)
        for field, names in (("volumes", [v.name for v in self.volumes]), ("env", [e.name for e in self.env])):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{field}: {', '.join(twice)} is listed twice")
        if len({volume.mount_path for volume in self.volumes}) < len(self.volumes):
            raise ValueError(_MOUNTED_TWICE)
        return self


class DriverPod(Pod):
    """The driver's pod."""

    memory_request: MemorySize | None = None
    """Memory that the node reserves for the container (`1536Mi`, `4Gi`); it may use `memory` and `memoryOverhead` while
    the node has some to spare, and is the first to be evicted where the node has not. Unset: half of the two, at least
    1536Mi; never more than both."""


_MOST_OR_FEWER = "executors.min must not be greater than executors.max, or executors.count where that is unset"


class Executors(Pod):
    """The executors' pods. They come when there is work for them (chunks, large batches, Delta's first look at a
    table), and go after a minute without any."""

    model_config = rules(
        _CPU_RULE, ("!has(self.min) || self.min <= (has(self.max) ? self.max : self.count)", _MOST_OR_FEWER)
    )

    min: Annotated[int, Field(ge=0, le=1000)] = 0
    """Number of executors that run whether or not there is work for them. With 1 or more nothing waits for a pod."""
    max: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Maximum number of executors at the same time; 0: the driver does all the work itself, with its own cores and
    memory. Unset: `count`, which is 1 where it was not set."""
    count: Annotated[int, Field(ge=0, le=1000)] = 1
    """The former name of `max`, for manifests that have it; not read where `max` is set."""

    @model_validator(mode="after")
    def _few_enough(self) -> "Executors":
        if self.min > self.most:
            raise ValueError(_MOST_OR_FEWER)
        return self

    @property
    def most(self) -> int:
        """At the same time, whichever name says it."""
        return self.count if self.max is None else self.max
