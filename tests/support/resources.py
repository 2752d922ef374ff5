"""Manifests that are right and manifests that are wrong, with what the user is told: judged by the models in
contract/test_resources.py and by a real API server with the CRDs in test_crds.py, which must agree."""

import re
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

SOURCE: Json = {
    "type": "postgresql", "host": "db", "database": "shop", "username": "tailrace",
    "credentials": {"secretName": "shop-db"},
}  # fmt: skip
MYSQL: Json = {"type": "mysql", "host": "db", "username": "tailrace"}
SPEC: Json = {
    "source": SOURCE,
    "tables": {"include": ["public.*"]},
    "target": {"type": "delta", "location": "s3://lake/shop"},
    "storage": {"location": "s3://lake/_tailrace/shop", "endpoint": "http://s3:7070", "pathStyle": True},
}
REQUEST: Json = {"replicator": "shop", "tables": ["public.a"]}


def replicator(name: str = "shop", **spec: object) -> Json:
    document = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": name}}
    return deepcopy(document | {"spec": SPEC | spec})


def request(name: str = "again", **spec: object) -> Json:
    document = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "SnapshotRequest", "metadata": {"name": name}}
    return deepcopy(document | {"spec": REQUEST | spec})


@dataclass(frozen=True)
class Refused:
    """A wrong manifest: what the model says, and what the API server says where its words differ."""

    name: str
    document: Json
    model: str
    server: str = ""

    @property
    def from_server(self) -> str:
        return self.server or self.model


def _pod(**pod: object) -> Json:
    return replicator(driver=pod)


def _settings(*names: str) -> list[Json]:
    return [{"name": name, "value": "300s"} for name in names]


def _volume(**volume: object) -> Json:
    return _pod(volumes=[{"name": "data", "mountPath": "/data"} | volume])


WRONG = (
    Refused("block-of-mysql", replicator(source=SOURCE | {"mysql": {"serverId": 5}}), "goes with type mysql only"),
    Refused(
        "block-of-postgresql", replicator(source=MYSQL | {"postgresql": {"slot": "mine"}}), "with type postgresql only"
    ),
    Refused("database-of-mysql", replicator(source=MYSQL | {"database": "shop"}), "give database with type postgresql"),
    Refused(
        "no-database",
        replicator(source={k: v for k, v in SOURCE.items() if k != "database"}),
        "give database with type postgresql",
    ),
    Refused("server-id-0", replicator(source=MYSQL | {"mysql": {"serverId": 0}}), "greater than or equal to 1"),
    Refused("no-include", replicator(tables={"include": []}), "at least 1 item"),
    Refused("pattern-without-schema", replicator(tables={"include": ["orders"]}), "include", "should match"),
    Refused("unknown-format", replicator(target={"type": "hudi", "location": "s3://b/x"}), "'delta' or 'iceberg'",
            'supported values: "delta", "iceberg"'),
    Refused("folder-catalog-on-s3", replicator(target={"type": "iceberg", "location": "s3://b/x"}), "no atomic commit"),
    Refused("folder-catalog-named-on-s3",
            replicator(target={"type": "iceberg", "location": "s3://b/x", "catalog": {"type": "folder"}}),
            "set catalog.type to rest or jdbc"),
    Refused("lake-without-location", replicator(target={"type": "delta"}), "location is required with type delta"),
    Refused("password-in-the-catalogs-address",
            replicator(target={"type": "iceberg", "location": "s3://b/x", "catalog": {
                "type": "jdbc", "uri": "jdbc:postgresql://db/c?user=u&password=x"}}),
            "must not contain a password"),
    Refused("catalog-with-delta",
            replicator(target={"type": "delta", "location": "s3://b/x", "catalog": {"type": "rest"}}),
            "catalog goes with type iceberg only"),
    Refused("location-without-scheme", replicator(storage={"location": "/tmp/x"}), "location", "should match"),
    Refused("two-passwords", replicator(source=SOURCE | {"passwordFile": "/x"}),
            "give credentials or passwordFile, not both"),
    Refused("no-credentials-kind", replicator(source=SOURCE | {"credentials": {}}),
            "give exactly one of secretName and file"),
    Refused("both-credentials-kinds", replicator(source=SOURCE | {"credentials": {"secretName": "a", "file": "/b"}}),
            "give exactly one of secretName and file"),
    Refused("two-certificates", replicator(source=SOURCE | {"tls": {"caSecretName": "a", "caFile": "/b"}}),
            "give caSecretName or caFile, not both"),
    *(Refused(name, replicator(source=SOURCE | {"tls": {"mode": "require", **tls}}), words)
      for name, tls, words in (
          ("client-certificate-without-key", {"clientCertFile": "/c"}, "clientCertFile and clientKeyFile go together"),
          ("client-key-without-certificate", {"clientKeyFile": "/k"}, "clientCertFile and clientKeyFile go together"),
          ("two-client-certificates", {"clientSecretName": "a", "clientCertFile": "/c", "clientKeyFile": "/k"},
           "give clientSecretName, or clientCertFile and clientKeyFile, not both"),
          ("client-certificate-in-clear", {"mode": "prefer", "clientSecretName": "a"},
           "a client certificate needs mode require, verify-ca or verify-full"),
      )),
    *(Refused(name, replicator(options=[{"match": "a.b", "mask": mask}], showValues=show), *words)
      for name, mask, show, words in (
          ("hash-without-key", [{"column": "c", "method": "Hash"}], False, ("Hash needs spec.maskKey",)),
          ("mask-and-show", [{"column": "c", "method": "Redact"}], True, ("showValues would show",)),
          ("truncate-without-length", [{"column": "c", "method": "Truncate"}], False, ("length with method Truncate",)),
          ("redact-with-length", [{"column": "c", "method": "Redact", "length": 1}], False, ("and only there",)),
          ("masked-twice", [{"column": "c", "method": "Redact"}] * 2, False, ("is listed twice", "Duplicate value")),
      )),
    Refused("not-a-duration", replicator(retry={"time": "soon"}), "retry.time", "should match"),
    Refused("port-out-of-range", replicator(source=SOURCE | {"port": 70000}), "65535"),
    Refused("no-time-for-a-chunk", replicator(snapshot={"chunkSeconds": 0}), "greater than 0",
            "should be greater than 0"),
    Refused("reserved-label", _pod(labels={"tailrace.dev/replicator": "other"}), "are reserved"),
    Refused("sparks-label", _pod(labels={"spark-app-selector": "x"}), "are reserved"),
    Refused("cpu-limit-below-cores", _pod(cores=2, cpuLimit="1500m"), "cpuLimit must not be less than cpuRequest"),
    Refused("more-executors-than-the-maximum", replicator(executors={"min": 2}), "executors.min must not be greater"),
    Refused("cpu-limit-below-request", _pod(cpuRequest="3", cpuLimit="2"), "cpuLimit must not be less than cpuRequest"),
    Refused("memory-of-the-driver", _pod(memory="256Mi"), "memory", "at least 512Mi"),
    Refused("memory-without-unit", _pod(memory="2048"), "memory", "should match"),
    Refused("env-without-value", _pod(env=[{"name": "A"}]), "give exactly one of value and valueFrom"),
    Refused("env-with-two-values",
            _pod(env=[{"name": "A", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
            "give exactly one of value and valueFrom"),
    Refused("env-of-the-operator", _pod(env=[{"name": "TAILRACE_SPARK_CONF_spark_authenticate", "value": "false"}]),
            "Spark's settings go to sparkConf"),
    *(Refused(key, replicator(sparkConf=_settings("spark.network.timeout", key)), f"{key} cannot be set: {words}")
      for key, words in {
          "spark.authenticate": "it could expose rows or credentials. Remove it: ",
          "spark.plugins": "it loads other code into the driver and the executors. Remove it; ",
          "spark.executor.extraJavaOptions": "Tailrace sets the class path and the options of its JVMs. Set options",
          "spark.executor.memory": "other fields of the spec decide it. Use driver, executors, image",
          "spark.hadoop.fs.s3a.secret.key": "Tailrace does not reach its storage through Hadoop alone. Use",
          "spark.sql.ansi.enabled": "the correctness of what Tailrace writes depends on its own value. Remove it",
      }.items()),
    Refused("not-of-spark", replicator(sparkConf=_settings("network.timeout")), "should match"),
    Refused("spark-setting-twice", replicator(sparkConf=_settings("spark.a", "spark.a")), "is listed twice",
            "Duplicate value"),
    Refused("env-twice", _pod(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]), "is listed twice",
            "Duplicate value"),
    Refused("volume-without-kind", _volume(), "give exactly one of persistentVolumeClaim, configMap, secret"),
    Refused("volume-of-two-kinds", _volume(emptyDir={}, secret={"secretName": "s"}), "give exactly one of persistent"),
    Refused("volume-twice",
            _pod(volumes=[{"name": "a", "mountPath": f"/{n}", "emptyDir": {}} for n in "ab"]), "is listed twice",
            "Duplicate value"),
    Refused("mounted-twice",
            _pod(volumes=[{"name": name, "mountPath": "/x", "emptyDir": {}} for name in "ab"]),
            "two volumes have the same mountPath"),
    Refused("reserved-volume", _volume(name="tailrace-run", emptyDir={}), "begin with tailrace- are reserved"),
    Refused("mount-over-ours", _volume(mountPath="/tmp", emptyDir={}), "mountPath is reserved for the operator"),
    Refused("mount-below-ours", _volume(mountPath="/etc/tailrace/x", emptyDir={}), "is reserved for the operator"),
    Refused("toleration-of-nothing", _pod(tolerations=[{"value": "x"}]), "one with Equal needs a key"),
    Refused("toleration-with-value", _pod(tolerations=[{"key": "a", "operator": "Exists", "value": "x"}]),
            "with operator Exists has no value"),
    Refused("toleration-seconds",
            _pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]),
            "tolerationSeconds goes with effect NoExecute only"),
    Refused("node-without-values", _pod(affinity={"requiredNodes": [{"key": "disk", "operator": "In"}]}),
            "values goes with In"),
    Refused("node-with-values",
            _pod(affinity={"preferredNodes": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
            "values goes with In"),
    Refused("relative-mount", _volume(mountPath="data", emptyDir={}), "mountPath", "should match"),
    Refused("where-and-keys", request(where="true", keys=[["1"]]), "give where or keys, not both"),
    Refused("keys-of-two-tables", request(keys=[["1"]], tables=["public.a", "public.b"]),
            "keys goes with exactly one table"),
    Refused("no-keys", request(keys=[]), "at least 1 item"),
)  # fmt: skip

UNKNOWN = (
    Refused("unknown-field", replicator(tabels={}), "tabels", 'unknown field "spec.tabels"'),
    Refused("volume-of-the-node", _volume(hostPath={"path": "/"}), "hostPath",
            'unknown field "spec.driver.volumes[0].hostPath"'),
    Refused("memory-request-of-executors", replicator(executors={"memoryRequest": "1Gi"}), "memoryRequest",
            'unknown field "spec.executors.memoryRequest"'),
    Refused("unknown-field-of-a-request", request(chunks=3), "chunks", 'unknown field "spec.chunks"'),
)  # fmt: skip
"""The API server drops these fields unless it is asked to be strict, as kubectl asks by default."""

POD: Json = {
    "cores": 2, "memory": "4Gi", "memoryOverhead": "1Gi",
    "labels": {"team": "data", "example.org/cost-centre": "12"}, "annotations": {"example.org/note": "any text: x"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
    "affinity": {
        "requiredNodes": [{"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}],
        "preferredNodes": [{"key": "zone", "operator": "Exists"}],
        "spreadOver": "kubernetes.io/hostname",
    },
    "priorityClassName": "batch",
    "volumes": [
        {"name": "log", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "log"}},
        {"name": "conf", "mountPath": "/conf", "configMap": {"name": "conf"}, "readOnly": True},
        {"name": "keys", "mountPath": "/keys", "secret": {"secretName": "keys"}, "subPath": "one"},
        {"name": "scratch", "mountPath": "/scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
    ],
    "env": [{"name": "A", "value": ""}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k.1"}}}],
}  # fmt: skip

RIGHT = (
    replicator("minimal"),
    replicator("without-password", source={k: v for k, v in SOURCE.items() if k != "credentials"}),
    replicator("mysql", source=MYSQL | {"mysql": {"serverId": 4_000_000_000}}),
    replicator("iceberg-rest", target={"type": "iceberg", "location": "s3://b/x", "catalog": {
        "type": "rest", "uri": "https://catalog", "credentials": {"secretName": "catalog"}}}),
    replicator("iceberg-folder", target={"type": "iceberg", "location": "file:///data/x"}),
    replicator(
        "everything", suspend=True, restartNonce=7, deletionPolicy="Delete", image="registry/spark:1",
        imagePullPolicy="Always", imagePullSecrets=["pull"], serviceAccountName="lake-writer",
        tables={"include": ["public.*", "sales.orders"], "exclude": ["public.tmp_*"]},
        options=[{"match": "public.a", "columns": ["id", "Größe"], "asText": ["price"],
            "as": {"Maß": "decimal(38,10)", "rate": "double", "doc": "text"}, "mask": [
            {"column": "Größe", "method": "Hash"}, {"column": "zip", "method": "Truncate", "length": 2}],
            "onUnsupported": "SetNull"}],
        maskKey={"secretName": "mask-key"},
        snapshot={"initial": False, "chunkSeconds": 0.5, "chunkRows": 1000, "parallelism": 8},
        apply={"suspend": True, "interval": "1m30s"}, retry={"time": "7d"}, retention={"time": "12h"},
        driver=POD | {"memoryRequest": "2Gi"}, executors=POD | {"min": 1, "max": 3},
        sparkConf=_settings("spark.network.timeout"),
    ),
    replicator("executors-by-their-former-name", executors={"count": 3, "min": 3}),
    replicator("many-spark-settings", sparkConf=_settings(*(f"spark.rpc.{'x' * 110}{n}" for n in range(50)))),
    request("whole-table"),
    request("filtered", where="region = 'eu'", chunkRows=1000, parallelism=4, suspend=True),
    request("some-keys", keys=[["1", "a"], ["2", ""]]),
)  # fmt: skip

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def examples(*kinds: str) -> list[Json]:
    """Documents of examples/ of these kinds."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.rglob("*.yaml"))]
    return [d for text in texts for d in yaml.safe_load_all(text) if d.get("kind") in kinds]


def manifests_in(page: str) -> list[Json]:
    """Whole Replicators and SnapshotRequests in the code blocks of a Markdown page."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    documents = [d for block in blocks if "kind: " in block for d in yaml.safe_load_all(block)]
    return [d for d in documents if d.get("kind") in ("Replicator", "SnapshotRequest")]
