"""The base of every document of the contract: the closed model and the bounded strings.

Every string and list has an upper bound: the same models become the CRDs' schemas, and the API server accepts a CEL
rule only where it can bound its cost.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints
from pydantic.alias_generators import to_camel

GROUP = "tailrace.dev"
OWNER_LABEL = f"{GROUP}/owner"
"""The label of a Replicator whose value is its owner in lineage events; `<label>.<type>` for one of a type."""
VERSIONS = ("v1alpha1",)
"""Versions that the CRDs serve, the oldest first; all have the same fields. One is added for a release before anything
else depends on it, and the oldest goes when no release in use needs it."""
VERSION = VERSIONS[0]
"""The version in which objects are stored and which operator and driver speak: the release before knows it, so a
downgrade to that one is possible (the API server refuses CRDs without a version that objects may be stored as)."""
API_VERSION = f"{GROUP}/{VERSION}"

_NAME, _IDENTIFIER = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", r"^[a-z_][a-z0-9_]*$"
TABLE, _DURATION, _MEMORY = r"^[^.]+\..+$", r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$", r"^[1-9][0-9]*(Mi|Gi)$"
_ONE_TABLE = r"^[^.*?]+\.[^*?]+$"
_URL = r"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[^\s#]*)?$"
LOCATION = r"^(file:///|s3://|gs://|az://).+$"
_LINEAGE = r"^\S(.*\S)?$"
_SHARE = r"^(0\.[0-9]{0,3}[1-9]|[1-9][0-9]?(\.[0-9]{1,4})?)%$"
CODE = r"^[0-9a-f]{8}$"
_COPIED_AS = r"^(text|double|list|struct|binary|time|decimal\(([1-9]|[12][0-9]|3[0-8]),([0-9]|[12][0-9]|3[0-8])\))$"


def api_versions() -> str:
    """The accepted API versions, for messages."""
    return " or ".join(f"{GROUP}/{version}" for version in VERSIONS)


def served(version: object) -> bool:
    return version in [f"{GROUP}/{one}" for one in VERSIONS]


def _served(version: str) -> str:
    if not served(version):
        raise ValueError(f"use {api_versions()}")
    return version


ApiVersion = Annotated[str, AfterValidator(_served)]
FORMS = {
    _NAME: "use lower-case letters, digits, - and ., with a letter or digit at both ends",
    _IDENTIFIER: "use lower-case letters, digits and _, beginning with a letter or _",
    TABLE: "write schema.table",
    _URL: "write https://host/path, without user name and password",
    _ONE_TABLE: "write schema.table, without * and ?",
    _DURATION: "write a duration such as 500ms, 30s, 15m, 1h30m or 7d",
    _SHARE: "write a share such as 5% or 0.1%, above 0 and below 100%",
    _LINEAGE: "write a name, without blanks at its ends",
    _MEMORY: "write a size such as 512Mi or 2Gi",
    _COPIED_AS: "write text, double, list, struct, binary, time or decimal(p,s), 0 ≤ s ≤ p ≤ 38;"
    ' within braces in quotes: "decimal(38,10)"',
    CODE: "write the code that the refusal names: eight hexadecimal digits, in quotes",
    LOCATION: "write file:///path, s3://bucket/prefix, gs://… or az://…"
    " (s3:// for s3a:// and s3n://, az:// for abfss:// and wasbs://; hdfs:// is not supported)",
}
"""Descriptions of the accepted form where a pattern does not match; for messages."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=_NAME)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=_IDENTIFIER)]
ColumnName = Annotated[str, StringConstraints(min_length=1, max_length=256)]
NO_EXPRESSION = (
    "a pattern is not a regular expression: * stands for any run of characters, ? for one, everything else for itself"
    " (for a backslash in a name write ?)"
)


def no_expression(list_of_patterns: str) -> tuple[str, str]:
    """The CEL rule for a list of `TablePattern`s, and its message."""
    signs = r"!p.contains('\\') && !p.startsWith('^') && !(p.contains('(') && p.contains('|'))"
    return f"!has(self.{list_of_patterns}) || self.{list_of_patterns}.all(p, {signs})", NO_EXPRESSION


def _pattern(text: str) -> str:
    if "\\" in text or text.startswith("^") or ("(" in text and "|" in text):
        raise ValueError(NO_EXPRESSION)
    return text


TablePattern = Annotated[str, StringConstraints(min_length=3, max_length=256, pattern=TABLE), AfterValidator(_pattern)]
"""`schema.table`; `*` matches any run of characters, `?` one; everything else is literal, case counts."""
ReceiverUrl = Annotated[str, StringConstraints(max_length=1024, pattern=_URL)]
"""`https://host:port/path?query`."""
OneTable = Annotated[str, StringConstraints(min_length=3, max_length=256, pattern=_ONE_TABLE)]
"""`schema.table`, one table."""
Duration = Annotated[str, StringConstraints(pattern=_DURATION, max_length=32)]
"""`30s`, `15m`, `1h30m`, `7d`."""
A_MINUTE = "it must be at least 1m"
Share = Annotated[str, StringConstraints(pattern=_SHARE, max_length=8)]
"""`5%`, `0.5%`: above 0 and below 100."""
MemorySize = Annotated[str, StringConstraints(pattern=_MEMORY, max_length=16)]
"""`512Mi`, `2Gi`."""
LineageNamespace = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=_LINEAGE)]
"""A namespace of OpenLineage's jobs, such as `prod`."""
Location = Annotated[str, StringConstraints(min_length=1, max_length=1024, pattern=LOCATION)]
"""`file:///path`, `s3://bucket/prefix`, `gs://…`, `az://…`."""
CopiedAs = Annotated[str, StringConstraints(pattern=_COPIED_AS, max_length=14)]
"""`text`, `double`, `decimal(38,10)`, `list`, `struct`, `binary`, `time`."""


@dataclass(frozen=True)
class FormerDefault:
    """Marks a field whose default has changed, with the one that it had in its first version:
    `interval: Annotated[Duration, FormerDefault("5s")] = "1s"`. See `defaults`."""

    value: str | int | bool | None


class Model(BaseModel):
    """Closed and frozen; camelCase outside. The text under a field is its description in the CRD."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


def seconds_in_cel(field: str) -> str:
    """A CEL expression for the seconds of a `Duration`, as `units.seconds` counts them: CEL's own durations have no
    days."""
    number, unit = "double(p.find('[0-9]+([.][0-9]+)?'))", "p.find('[a-z]+')"
    factor = f"{unit} == 'ms' ? 0.001 : {unit} == 's' ? 1.0 : {unit} == 'm' ? 60.0 : {unit} == 'h' ? 3600.0 : 86400.0"
    return f"self.{field}.findAll('[0-9.]+[a-z]+').map(p, {number} * ({factor})).sum()"


def at_least_a_minute(field: str) -> tuple[str, str]:
    """The CEL rule for a `Duration` of a minute at least, and its message; the model's validator says the same."""
    return f"!has(self.{field}) || {seconds_in_cel(field)} >= 60.0", f"{field}: {A_MINUTE}"


def rules(*pairs: tuple[str, str]) -> ConfigDict:
    """CEL rules (expression, message) for the API server. A validator of the same model says the same to `tailrace
    run`; rules with `oldSelf` have no such twin: a manifest alone knows no earlier one."""
    return ConfigDict(
        json_schema_extra={"x-kubernetes-validations": [{"rule": rule, "message": text} for rule, text in pairs]}
    )


class Metadata(BaseModel):
    """Only the name and the labels of owners matter outside Kubernetes; what else Kubernetes writes here is passed
    over."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Name
    namespace: str = "default"
    uid: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    """Those that begin with `tailrace.dev/owner` name owners in lineage events."""
