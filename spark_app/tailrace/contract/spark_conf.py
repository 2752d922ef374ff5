"""`spec.sparkConf`: which of Spark's settings a user may choose, and what is said of the others. Pure.

Read by the model of a Replicator and, as rules of the CRD, by the API server. Refused is whatever Tailrace or the
operator sets itself (a unit test compares), and what would send rows or credentials elsewhere, load other code, or
change what is written. It is easier to allow one more later than to take one back.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from tailrace.contract.base import Model

TO_LOOK_INSIDE = (
    "spark.ui.enabled",
    "spark.eventLog.enabled", "spark.eventLog.dir", "spark.eventLog.compress",
    "spark.eventLog.rolling.enabled", "spark.eventLog.rolling.maxFileSize",
)  # fmt: skip
"""Allowed, although what begins like them is refused: a user who sets them wants to see Spark's jobs."""
_IN_A_FOLDER = "self.name != 'spark.eventLog.dir' || self.value.startsWith('file:///')"
_A_FOLDER = "spark.eventLog.dir must be a folder: write file:///path"


@dataclass(frozen=True)
class SparkRefusal:
    """Settings that begin with one of `names`, why they are refused, and the fix."""

    names: tuple[str, ...]
    why: str
    fix: str

    @property
    def text(self) -> str:
        return f" cannot be set: {self.why}. {self.fix}"


REFUSED = (
    SparkRefusal(
        (
            "spark.authenticate", "spark.network.crypto.", "spark.network.sasl.", "spark.io.encryption.",
            "spark.ssl.", "spark.ui.", "spark.redaction.", "spark.eventLog.",
            "spark.storage.decommission.fallbackStorage.",
        ),
        "it could expose rows or credentials",
        "Remove it: Spark's processes authenticate each other and encrypt without it",
    ),
    SparkRefusal(
        (
            "spark.jars", "spark.files", "spark.archives", "spark.plugins", "spark.extraListeners", "spark.serializer",
            "spark.closure.", "spark.kryo", "spark.shuffle.manager", "spark.shuffle.sort.io.plugin", "spark.repl.",
            "spark.resources.",
        ),
        "it loads other code into the driver and the executors",
        "Remove it; build an image that has what Spark needs, and name it in image",
    ),
    SparkRefusal(
        (
            "spark.driver.extra", "spark.driver.default",
            "spark.executor.extra", "spark.executor.default", "spark.executor.userClassPathFirst",
        ),
        "Tailrace sets the class path and the options of its JVMs",
        "Set options in the variable JAVA_TOOL_OPTIONS, in podTemplate of driver and executors",
    ),
    SparkRefusal(
        (
            "spark.master", "spark.remote", "spark.api.", "spark.connect.", "spark.submit.", "spark.app.",
            "spark.kubernetes.", "spark.driver.", "spark.executorEnv.", "spark.executor.cores",
            "spark.executor.instances", "spark.executor.memory", "spark.executor.pyspark.", "spark.executor.resource.",
            "spark.dynamicAllocation.", "spark.shuffle.service.", "spark.pyspark.", "spark.python.", "spark.local.dir",
        ),
        "other fields of the spec decide it",
        "Use driver, executors, image and serviceAccountName",
    ),
    SparkRefusal(
        ("spark.hadoop.",),
        "Tailrace does not reach its storage through Hadoop alone",
        "Use the fields of target and storage",
    ),
    SparkRefusal(
        ("spark.sql.", "spark.databricks.", "spark.delta.", "spark.scheduler.", "spark.speculation"),
        "the correctness of what Tailrace writes depends on its own value",
        "Remove it",
    ),
)  # fmt: skip
"""The first that fits is said."""


def refusal(name: str) -> str | None:
    """The reason why `name` cannot be set; None: it can."""
    if name in TO_LOOK_INSIDE:
        return None
    return next((name + one.text for one in REFUSED if name.startswith(one.names)), None)


def _rule(refused: SparkRefusal) -> dict[str, Any]:
    begins = " || ".join(f"self.name.startsWith({json.dumps(name)})" for name in refused.names)
    listed = ", ".join(f"{name}*" for name in refused.names)
    allowed = [name for name in TO_LOOK_INSIDE if name.startswith(refused.names)]
    unless = f" || self.name in {json.dumps(allowed)}" if allowed else ""
    but = f", but {', '.join(allowed)}," if allowed else ""
    return {
        "rule": f"!({begins}){unless}",
        "message": f"{listed}{but}{refused.text}",
        "messageExpression": f"self.name + {json.dumps(refused.text)}",
    }


class SparkSetting(Model):
    """One of Spark's settings."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [*map(_rule, REFUSED), {"rule": _IN_A_FOLDER, "message": _A_FOLDER}]
        }
    )

    name: Annotated[str, StringConstraints(max_length=128, pattern=r"^spark\.[A-Za-z0-9_.-]+$")]
    """Its name, such as `spark.network.timeout`."""
    value: Annotated[str, StringConstraints(max_length=1024)]
    """Its value."""

    @model_validator(mode="after")
    def _allowed(self) -> "SparkSetting":
        reason = refusal(self.name)
        if reason is not None:
            raise ValueError(reason)
        if self.name == "spark.eventLog.dir" and not self.value.startswith("file:///"):
            raise ValueError(_A_FOLDER)
        return self


def _once(settings: tuple[SparkSetting, ...]) -> tuple[SparkSetting, ...]:
    names = [one.name for one in settings]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is listed twice")
    return settings


SparkConf = Annotated[
    tuple[SparkSetting, ...],
    Field(max_length=50, json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
    AfterValidator(_once),
]
