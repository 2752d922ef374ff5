"""Manifests that are right and manifests that are wrong, with what the user is told: judged by the models in
contract/test_resources.py and by a real API server with the CRDs in test_crds.py, which must agree."""

import re
from collections.abc import Sequence
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
BIGQUERY: Json = {"project": "p", "dataset": "copies", "location": "EU"}
SNOWFLAKE: Json = {"account": "o-a", "user": "u", "database": "D", "schema": "S", "warehouse": "W", "role": "R"}
KEY: Json = {"secretName": "key"}
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


def _with(field: str, value: object) -> Json:
    document = replicator()
    document["spec"][field] = value
    return document


def _pod(**pod: object) -> Json:
    return replicator(driver=pod)


def _settings(*names: str) -> list[Json]:
    return [{"name": name, "value": "300s"} for name in names]


def template(containers: Sequence[Json] = (), volumes: Sequence[Json] = (), **fields: object) -> Json:
    """A podTemplate. `containers`: the operator's own is the first, unless it says another name."""
    named = [{"name": "tailrace"} | one for one in containers]
    return {"spec": fields | {"containers": named, "volumes": [*volumes]}}


def on_claim(path: str, claim: str) -> Json:
    """A podTemplate that mounts a claim."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return template([{"volumeMounts": [{"name": "data", "mountPath": path}]}], [volume])


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
    Refused("follows-itself", replicator(follow={"location": "s3://lake/_tailrace/shop"}), "are the same folder"),
    Refused("follows-inside", replicator(follow={"location": "s3://lake/_tailrace/shop/b"}), "or one is inside"),
    Refused(
        "follows-with-a-slot",
        replicator(source=SOURCE | {"postgresql": {"slot": "mine"}}, follow={"location": "s3://lake/other"}),
        "has no slot, publication, server id or signal table",
    ),
    Refused(
        "follows-with-signals",
        replicator(source=SOURCE | {"signalTable": "public.s"}, follow={"location": "s3://lake/other"}),
        "has no slot, publication, server id or signal table",
    ),
    Refused("server-id-0", replicator(source=MYSQL | {"mysql": {"serverId": 0}}), "greater than or equal to 1"),
    Refused("freshness-of-50ms", replicator(apply={"freshness": "50ms"}), "at least 100ms and at most 1h"),
    Refused("freshness-of-2h", replicator(apply={"freshness": "2h"}), "at least 100ms and at most 1h"),
    Refused("freshness-of-a-day", replicator(apply={"freshness": "1d"}), "at least 100ms and at most 1h"),
    Refused("no-include", replicator(tables={"include": []}), "at least 1 item"),
    Refused("pattern-without-schema", replicator(tables={"include": ["orders"]}), "include", "write schema.table"),
    *(Refused(f"{field}-with-{name}", replicator(tables={"include": ["public.*"], field: [pattern]}),
              "is not a regular expression")
      for field in ("include", "exclude")
      for name, pattern in (
          ("a-backslash", r"public\.orders"), ("an-anchor", "^public.orders"), ("a-choice", "public.(a|b)"),
      )),
    Refused("requested-expression", request(tables=[r"public\..*"]), "is not a regular expression"),
    *(Refused(f"{name}-in-the-{place}", _with(place, fields | {"host": host}),
              "host is a name or an address alone")
      for place, fields in (
          ("source", SOURCE),
          ("target", {"type": "postgresql", "host": "h", "database": "c", "username": "u"}),
      )
      for name, host in (("url", "postgresql://h:5432/d"), ("port", "db:5432"), ("blank", "a b"))),
    *(Refused(f"lake-on-{store}", replicator(target={"type": "delta", "location": f"{store}://b/x"}),
              "tables of a lake are on s3:// or file:///")
      for store in ("gs", "az")),
    *(Refused(f"target-{name}", replicator(target={"type": "delta", "location": f"s3://lake/_tailrace{rest}",
                                                   "endpoint": "http://s3:7070"}),
              "one is inside the other")
      for name, rest in (("on-the-log", "/shop"), ("in-the-log", "/shop/tables"), ("around-the-log", ""))),
    Refused("unknown-format", replicator(target={"type": "hudi", "location": "s3://b/x"}),
            "'delta', 'iceberg', 'postgresql', 'mysql', 'bigquery' or 'snowflake'",
            'supported values: "delta", "iceberg", "postgresql", "mysql", "bigquery", "snowflake"'),
    Refused("folder-catalog-on-s3", replicator(target={"type": "iceberg", "location": "s3://b/x"}), "no atomic commit"),
    Refused("folder-catalog-named-on-s3",
            replicator(target={"type": "iceberg", "location": "s3://b/x", "catalog": {"type": "folder"}}),
            "set catalog.type to rest or jdbc"),
    Refused("bigquery-without-its-block", replicator(target={"type": "bigquery"}),
            "the block bigquery goes with type bigquery, and only there"),
    Refused("lake-with-bigquery", replicator(target={"type": "delta", "location": "s3://b/x", "bigquery": BIGQUERY}),
            "the block bigquery goes with type bigquery, and only there"),
    Refused("bigquery-with-host", replicator(target={"type": "bigquery", "bigquery": BIGQUERY, "host": "h"}),
            "go with types postgresql and mysql only"),
    Refused("bigquery-with-location",
            replicator(target={"type": "bigquery", "bigquery": BIGQUERY, "location": "s3://b/x"}),
            "go with type delta and iceberg only"),
    Refused("snowflake-without-its-block", replicator(target={"type": "snowflake", "credentials": KEY}),
            "the block snowflake goes with type snowflake, and only there"),
    Refused("bigquery-with-snowflake",
            replicator(target={"type": "bigquery", "bigquery": BIGQUERY, "snowflake": SNOWFLAKE}),
            "the block snowflake goes with type snowflake, and only there"),
    Refused("snowflake-without-a-key", replicator(target={"type": "snowflake", "snowflake": SNOWFLAKE}),
            "credentials are required with type snowflake"),
    Refused("snowflake-with-host",
            replicator(target={"type": "snowflake", "snowflake": SNOWFLAKE, "credentials": KEY, "host": "h"}),
            "go with types postgresql and mysql only"),
    Refused("lake-without-location", replicator(target={"type": "delta"}), "location is required with type delta"),
    Refused("database-without-host", replicator(target={"type": "postgresql", "database": "c", "username": "u"}),
            "host and username are required with types postgresql and mysql"),
    *(Refused(name, replicator(target={"host": "h", "username": "u", **target}), "give database with type postgresql")
      for name, target in (
          ("postgresql-without-database", {"type": "postgresql"}),
          ("mysql-with-database", {"type": "mysql", "database": "c"}),
      )),
    Refused("database-with-location",
            replicator(target={"type": "postgresql", "host": "h", "database": "c", "username": "u",
                               "location": "s3://b/x"}),
            "go with type delta and iceberg only"),
    Refused("lake-with-schema", replicator(target={"type": "delta", "location": "s3://b/x", "schema": "copies"}),
            "go with types postgresql and mysql only"),
    Refused("cutover-of-a-follower", replicator(target=SOURCE, cutover={}, follow={"location": "s3://lake/other"}),
            "the Replicator that reads the source has to stop last"),
    Refused("cutover-of-a-lake", replicator(cutover={}),
            "cutover moves programs between servers of one product: target.type must be source.type"),
    Refused("cutover-of-fresh-verifications", replicator(target=SOURCE, cutover={"verifiedWithin": "59s"}),
            "verifiedWithin is 59s: it must be at least 1m", "verifiedWithin: it must be at least 1m"),
    *(Refused(f"cutover-of-verifications-within-{zero}", replicator(target=SOURCE, cutover={"verifiedWithin": zero}),
              f"verifiedWithin is {zero}: it must be at least 1m", "verifiedWithin: it must be at least 1m")
      for zero in ("0ms", "0s", "0m", "0h", "0d", "00.0d", "0d30s", "0.0001d")),
    *(Refused(f"{field}-of-no-days", _with(field, {name: "0d"}), f"{name} is 0d: {bounds}",
              f"{name}: {bounds}")
      for field, name, bounds in (
          ("verify", "every", "it must be at least 1m"),
          ("cuts", "every", "it must be at least 1m"),
          ("objective", "window", "it must be at least 1h and at most 7d"),
      )),
    Refused("lake-that-adopts", replicator(target={"type": "delta", "location": "s3://b/x", "adopt": True}),
            "go with types postgresql and mysql only"),
    Refused("target-in-tailraces-schema",
            replicator(target={"type": "mysql", "host": "h", "username": "u", "schema": "_tailrace"}),
            "schema _tailrace is Tailrace's own"),
    Refused("lake-with-host", replicator(target={"type": "delta", "location": "s3://b/x", "host": "h"}),
            "go with types postgresql and mysql only"),
    Refused("two-passwords-of-the-target",
            replicator(target={"type": "postgresql", "host": "h", "database": "c", "username": "u",
                               "passwordFile": "/p", "credentials": {"file": "/q"}}),
            "give credentials or passwordFile, not both"),
    Refused("password-in-the-catalogs-address",
            replicator(target={"type": "iceberg", "location": "s3://b/x", "catalog": {
                "type": "jdbc", "uri": "jdbc:postgresql://db/c?user=u&password=x"}}),
            "must not contain a password"),
    Refused("catalog-with-delta",
            replicator(target={"type": "delta", "location": "s3://b/x", "catalog": {"type": "rest"}}),
            "catalog goes with type iceberg only"),
    *(Refused(f"location-{name}", replicator(storage={"location": location}), "location",
              "write file:///path, s3://bucket/prefix")
      for name, location in (
          ("without-scheme", "/tmp/x"), ("of-hadoop", "s3a://b/x"), ("of-azures-driver", "abfss://c@a.net/x"),
          ("on-hdfs", "hdfs://n/x"),
      )),
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
    *(Refused(name, replicator(options=[{"match": "a.b", **options}]), *words)
      for name, options, words in (
          ("prefix-of-no-history", {"historyPrefix": "sys_"}, ("historyPrefix names the columns that a history adds",)),
          ("prefix-that-is-no-name", {"history": "Changes", "historyPrefix": "a-"}, ("historyPrefix", "should match")),
          ("partitions-of-versions", {"history": "Versions", "partitionBy": "day"},
           ("partitionBy goes with history: Changes alone",)),
      )),
    Refused("partitions-outside-a-lake",
            replicator(target={"type": "bigquery", "bigquery": BIGQUERY},
                       options=[{"match": "a.b", "history": "Changes", "partitionBy": "day"}]),
            "options[].partitionBy goes with a target of type delta or iceberg"),
    Refused("not-a-duration", replicator(retry={"time": "soon"}), "retry.time", "should match"),
    Refused("port-out-of-range", replicator(source=SOURCE | {"port": 70000}), "65535"),
    Refused("no-time-for-a-chunk", replicator(snapshot={"chunkSeconds": 0}), "greater than 0",
            "should be greater than 0"),
    Refused("cpu-limit-below-cores", _pod(cores=2, cpuLimit="1500m"), "cpuLimit must not be less than cpuRequest"),
    Refused("more-executors-than-the-maximum", replicator(executors={"min": 2}), "executors.min must not be greater"),
    Refused("cpu-limit-below-request", _pod(cpuRequest="3", cpuLimit="2"), "cpuLimit must not be less than cpuRequest"),
    Refused("memory-of-the-driver", _pod(memory="256Mi"), "memory", "at least 512Mi"),
    Refused("memory-without-unit", _pod(memory="2048"), "memory", "should match"),
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
    Refused("sample-of-a-read", request(sample="5%"), "sample goes with mode Verify or Repair, and without keys"),
    Refused("sample-of-keys", request(mode="Verify", sample="5%", keys=[["1"]]), "sample goes with mode Verify"),
    Refused("sample-of-everything", request(mode="Verify", sample="100%"), "sample", "spec.sample"),
    Refused("sample-of-nothing", request(mode="Verify", sample="0%"), "sample", "spec.sample"),
    *(Refused(f"rewind-with-{what}", request(mode="Rewind", rewind={"toCut": "noon"}, **spec),
              "mode Rewind reads no rows")
      for what, spec in (("where", {"where": "true"}), ("keys", {"keys": [["1"]], "tables": ["public.a"]}),
                         ("chunk-rows", {"chunkRows": 9}), ("parallelism", {"parallelism": 1}),
                         ("resync", {"resync": True}))),
    Refused("rewind-without-moment", request(mode="Rewind"), "rewind goes with mode Rewind"),
    Refused("rewind-of-a-read", request(rewind={"toCut": "noon"}), "rewind goes with mode Rewind"),
    Refused("rewind-to-nothing", request(mode="Rewind", rewind={}), "exactly one of toCut, toTime and toRecord"),
    Refused("rewind-to-two", request(mode="Rewind", rewind={"toCut": "noon", "toRecord": 3}),
            "exactly one of toCut, toTime and toRecord"),
    Refused("rewind-to-a-time-without-zone", request(mode="Rewind", rewind={"toTime": "2026-11-28T12:00:00"}),
            "toTime", "spec.rewind.toTime"),
    Refused("rewind-to-no-cut", request(mode="Rewind", rewind={"toCut": "Noon!"}), "toCut", "spec.rewind.toCut"),
    Refused("objective-of-minutes", replicator(objective={"window": "10m"}),
            "window is 10m: it must be at least 1h and at most 7d", "window: it must be at least 1h and at most 7d"),
    *(Refused(f"objective-of-{window}", replicator(objective={"window": window}),
              f"window is {window}: it must be at least 1h and at most 7d",
              "window: it must be at least 1h and at most 7d")
      for window in ("0.01d", "7d1h", "1h7d", "169h")),
    Refused("objective-of-everything", replicator(objective={"percent": 100}), "percent", "spec.objective.percent"),
    *(Refused(f"lineage-with-{name}", replicator(lineage={"namespace": "prod", **given}),
              "give exactly one of configFile and secretName")
      for name, given in (("nothing", {}), ("both", {"configFile": "/c", "secretName": "s"}))),
    *(Refused(f"lineage-{name}", replicator(lineage={"configFile": "/c", **given}), "lineage.namespace", words)
      for name, given, words in (
          ("without-namespace", {}, "Required value"), ("of-an-empty-namespace", {"namespace": ""}, "at least 1 char"),
          ("of-a-blank-namespace", {"namespace": " "}, "should match"),
      )),
    Refused("verified-all-the-time", replicator(verify={"every": "30s"}), "every is 30s: it must be at least 1m",
            "every: it must be at least 1m"),
    Refused("where-and-keys", request(where="true", keys=[["1"]]), "give where or keys, not both"),
    Refused("keys-of-two-tables", request(keys=[["1"]], tables=["public.a", "public.b"]),
            "keys goes with exactly one table"),
    Refused("no-keys", request(keys=[]), "at least 1 item"),
)  # fmt: skip

TEMPLATES = (
    *(Refused(key, _pod(podTemplate={"metadata": {kind: {key: "x"}}}), f"{key}: the operator and Spark set it")
      for kind, key in (("labels", "tailrace.dev/replicator"), ("labels", "spark-app-selector"),
                        ("annotations", "tailrace.dev/template-hash"))),
    *(Refused(field, _pod(podTemplate={"spec": {field: value}}), f"{field}{words}")
      for field, value, words in (
          ("hostNetwork", True, " (found true): pods do not reach into their node: remove it"),
          ("serviceAccountName", "lake", ' (found "lake"): use serviceAccountName of the Replicator'),
          ("securityContext", {"runAsUser": 0}, ": every container fits Pod Security level restricted: remove it"),
          ("terminationGracePeriodSeconds", 5, " (found 5): the operator sets it: remove it"),
      )),
    *(Refused(field, _pod(podTemplate=template([{field: value}])), f"containers[tailrace].{field}{words}")
      for field, value, words in (
          ("image", "other", ' (found "other"): use image and imagePullPolicy of the Replicator'),
          ("command", ["sh"], ": the operator sets it: remove it"),
          ("livenessProbe", {}, ": the operator sets it: remove it"),
          ("env", [{"name": "TAILRACE_SPARK_CONF_a", "value": "b"}], ": TAILRACE_SPARK_CONF_a: the operator sets it"),
          ("volumeMounts", [{"name": "a", "mountPath": "/etc/tailrace/x"}], ": /etc/tailrace/x: the operator"),
          ("resources", {"limits": {"memory": "1Gi"}}, ".limits: memory: use cores, cpuRequest"),
      )),
    Refused("security-of-another-container",
            _pod(podTemplate=template([{"name": "proxy", "securityContext": {"privileged": True}}])),
            "containers[proxy].securityContext: every container fits"),
    Refused("volume-of-the-node", _pod(podTemplate=template(volumes=[{"name": "n", "hostPath": {"path": "/"}}])),
            "volumes[n].hostPath: pods do not reach into their node"),
    Refused("reserved-volume", _pod(podTemplate=template(volumes=[{"name": "tailrace-run", "emptyDir": {}}])),
            "volumes[tailrace-run].name: tailrace-run: such names are the operator's"),
    Refused("two-at-once", _pod(podTemplate=template(hostPID=True, hostIPC=True)), "remove it; hostIPC (found true)"),
)  # fmt: skip
"""What the operator refuses before it touches anything; the API server does not look into them."""

UNKNOWN = (
    Refused("unknown-field", replicator(tabels={}), "tabels", 'unknown field "spec.tabels"'),
    Refused("name-of-a-pod", _pod(podTemplate={"metadata": {"name": "mine"}}), "metadata.name",
            'unknown field "spec.driver.podTemplate.metadata.name"'),
    Refused("memory-request-of-executors", replicator(executors={"memoryRequest": "1Gi"}), "memoryRequest",
            'unknown field "spec.executors.memoryRequest"'),
    Refused("interval-of-apply", replicator(apply={"interval": "1s"}), "interval is now freshness",
            'unknown field "spec.apply.interval"'),
    Refused("unknown-field-of-lineage", replicator(lineage={"namespace": "a", "configFile": "/c", "url": "http://x"}),
            "spec.lineage.url", 'unknown field "spec.lineage.url"'),
    Refused("unknown-field-of-a-request", request(chunks=3), "chunks", 'unknown field "spec.chunks"'),
)  # fmt: skip
"""The API server drops these fields unless it is asked to be strict, as kubectl asks by default."""

POD: Json = {
    "cores": 2, "memory": "4Gi", "memoryOverhead": "1Gi",
    "podTemplate": {
        "metadata": {
            "labels": {"team": "data", "example.org/cost-centre": "12"},
            "annotations": {"example.org/note": "any text: x"},
        },
        "spec": {
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
            "priorityClassName": "batch",
            "containers": [
                {
                    "name": "tailrace",
                    "env": [
                        {"name": "A", "value": ""},
                        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k.1"}}},
                    ],
                    "resources": {"requests": {"ephemeral-storage": "1Gi"}},
                    "volumeMounts": [
                        {"name": "log", "mountPath": "/data"},
                        {"name": "keys", "mountPath": "/keys", "subPath": "one", "readOnly": True},
                    ],
                },
                {"name": "proxy", "image": "proxy", "command": ["proxy"], "env": [{"name": "HOME", "value": "/"}]},
            ],
            "volumes": [
                {"name": "log", "persistentVolumeClaim": {"claimName": "log"}},
                {"name": "keys", "secret": {"secretName": "keys"}},
            ],
        },
    },
}  # fmt: skip

RIGHT = (
    replicator("to-a-database", target=SOURCE | {"tls": {"mode": "verify-full", "caSecretName": "copy-ca"}}),
    replicator("moves-programs", target=SOURCE, cutover={"acceptMissing": True, "verifiedWithin": "12h"}),
    replicator("minimal"),
    replicator("by-days", target=SOURCE, cutover={"verifiedWithin": "0.5d"}, verify={"every": "1d12h"},
               objective={"window": "2d"}),
    replicator("in-odd-units", target=SOURCE, cutover={"verifiedWithin": "0d90m"}, verify={"every": "90m0d"},
               cuts={"every": "0.001d"}, objective={"window": "0.5d1.5h"}, apply={"freshness": "0.01d500ms"}),
    *(replicator(f"host-{number}", source=SOURCE | {"host": host})
      for number, host in enumerate(("10.0.0.7", "2001:db8::7", "::1", "/run/postgresql", "db.shop.svc"))),
    replicator("names-with-signs", tables={"include": ["public.a(b)", "public.a|b", "sales.cost_$", "x.a^"]}),
    replicator("log-beside-the-tables", target={"type": "delta", "location": "s3://lake/_tailrace/shop2",
                                                "endpoint": "http://s3:7070"}),
    replicator("log-on-another-server", target={"type": "delta", "location": "s3://lake/_tailrace/shop",
                                                "endpoint": "http://other:7070"}),
    replicator("log-in-another-cloud", storage={"location": "gs://lake/log"}),
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
        apply={"suspend": True, "freshness": "1m30s"}, retry={"time": "7d"}, retention={"time": "12h"},
        driver=POD | {"memoryRequest": "2Gi"}, executors=POD | {"min": 1, "max": 3},
        sparkConf=_settings("spark.network.timeout"),
    ),
    replicator("executors-by-their-former-name", executors={"count": 3, "min": 3}),
    replicator("many-spark-settings", sparkConf=_settings(*(f"spark.rpc.{'x' * 110}{n}" for n in range(50)))),
    request("whole-table"),
    request("filtered", where="region = 'eu'", chunkRows=1000, parallelism=4, suspend=True),
    request("back", mode="Rewind", rewind={"toCut": "before_sale"}),
    request("back-to-a-time", mode="Rewind", rewind={"toTime": "2026-11-28T12:00:00.5+01:00"}, suspend=True),
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
