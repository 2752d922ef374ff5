"""The driver's StatefulSet and headless Service. Pure.

A StatefulSet of 0 or 1: the kubelet brings the container back while the operator is away, at most one pod exists by
design, and its name is stable. `podManagementPolicy: Parallel` lets a new template replace a pod that never became
ready. The probes ask for `/healthz`, which is well from the HTTP server's start on until a loop hangs: Spark starts
executors once this pod is Ready, and snapshots need them.
"""

from typing import Any

from tailrace.contract.driver import HEALTH
from tailrace.contract.pod_template import CONTAINER
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.resources import names, pods, references
from tailrace_operator.resources.defaults import NO_DEFAULTS, PodDefaults

GRACE_SECONDS = 60
"""More than one micro-batch, which the driver ends before it stops."""
EXECUTOR_TEMPLATE = f"{pods.MANIFESTS}/{names.EXECUTOR_KEY}"


def service(name: str) -> dict[str, Any]:
    ports = {"driver": names.RPC_PORT, "blocks": names.BLOCK_PORT, "http": names.HTTP_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": names.driver(name), "labels": names.labels(name, "driver")},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": names.selector(name, "driver"),
            "ports": [{"name": n, "port": p, "protocol": "TCP", "targetPort": p} for n, p in ports.items()],
        },
    }


def stateful_set(
    name: str,
    spec: ReplicatorSpec,
    image: str,
    template_hash: str,
    replicas: int,
    *,
    defaults: PodDefaults = NO_DEFAULTS,
) -> dict[str, Any]:
    users, own = pods.users(spec.driver, defaults), _pod_spec(name, spec, image, defaults.fixed_user)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": names.driver(name),
            "labels": names.labels(name, "driver"),
            "annotations": {names.TEMPLATE_HASH: template_hash},
        },
        "spec": {
            "replicas": replicas,
            "serviceName": names.driver(name),
            "podManagementPolicy": "Parallel",
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": names.selector(name, "driver")},
            "template": pods.template(name, "driver", users, own, {names.TEMPLATE_HASH: template_hash}),
        },
    }


def _pod_spec(name: str, spec: ReplicatorSpec, image: str, fixed_user: bool) -> dict[str, Any]:
    """The operator's own part of the pod."""
    volumes, mounts = pods.volumes(spec.driver, references.mounted_secrets(spec))
    spark_volume, spark_mount = pods.spark_secret(name)
    volumes += [
        {"name": "tailrace-replicator", "configMap": {"name": names.driver(name)}},
        {"name": "tailrace-token", "secret": {"secretName": names.driver(name), "defaultMode": 0o440}},
        spark_volume,
    ]
    mounts += [
        {"name": "tailrace-replicator", "mountPath": pods.MANIFESTS, "readOnly": True},
        {"name": "tailrace-token", "mountPath": pods.TOKENS, "readOnly": True},
        spark_mount,
    ]
    return {
        "serviceAccountName": spec.service_account_name or names.driver(name),
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": pods.pod_security(fixed_user),
        **pods.image_fields(spec),
        "containers": [
            {
                "name": CONTAINER,
                "image": image,
                "imagePullPolicy": spec.image_pull_policy,
                "args": _arguments(),
                "env": _environment(name, spec, image),
                "ports": _ports(),
                "resources": pods.resources(spec.driver),
                # The driver's last lines name the error and its fix; they reach the status from here.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                **_probes(),
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }


def _arguments() -> list[str]:
    """The run directory is the usual one: other commands find it in the container."""
    manifest = f"{pods.MANIFESTS}/{names.MANIFEST_KEY}"
    return [
        *("tailrace", "run", "-f", manifest, "--listen", f"0.0.0.0:{names.HTTP_PORT}"),
        *("--resync", f"{pods.MANIFESTS}/{names.RESYNC_KEY}"),
        *("--token-file", f"{pods.TOKENS}/{names.TOKEN_KEY}", "--log-format", "json"),
    ]


def _ports() -> list[dict[str, Any]]:
    numbers = {"driver": names.RPC_PORT, "blocks": names.BLOCK_PORT, "http": names.HTTP_PORT}
    return [{"name": n, "containerPort": p, "protocol": "TCP"} for n, p in numbers.items()]


def _probes() -> dict[str, Any]:
    healthy = {"httpGet": {"path": HEALTH, "port": "http"}, "timeoutSeconds": 5}
    return {
        "startupProbe": {**healthy, "periodSeconds": 2, "failureThreshold": 90},
        "readinessProbe": {**healthy, "periodSeconds": 10, "failureThreshold": 3},
        "livenessProbe": {**healthy, "periodSeconds": 20, "failureThreshold": 6},
    }


def _environment(name: str, spec: ReplicatorSpec, image: str) -> list[dict[str, Any]]:
    fields = {"POD_IP": "status.podIP", "POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    own: list[dict[str, Any]] = [
        {"name": n, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}} for n, path in fields.items()
    ]
    plain = {"HOME": pods.RUN_DIR, "XDG_STATE_HOME": pods.RUN_DIR, "TAILRACE_SECRETS": pods.SECRETS}
    if spec.executors.most:
        plain["TAILRACE_SPARK_MASTER"] = "k8s://https://kubernetes.default.svc:443"
    options = {f"TAILRACE_SPARK_CONF_{k.replace('.', '_')}": v for k, v in spark_options(name, spec, image).items()}
    return [*own, pods.LAST_WORDS, *({"name": n, "value": v} for n, v in {**plain, **options}.items())]


def spark_options(name: str, spec: ReplicatorSpec, image: str) -> dict[str, str]:
    """Spark's configuration on Kubernetes; `$(…)` is replaced by the kubelet. Without executors Spark runs in local
    mode, as on a laptop: it starts with none of the others, and nothing has to reach it."""
    executors, memory = spec.executors, {"spark.driver.memory": f"{pods.mebibytes(spec.driver.memory)}m"}
    if not executors.most:
        return memory
    account = spec.service_account_name or names.driver(name)
    return {
        **memory,
        # A file: a secret that Spark makes itself stands in the executors' pods, for all to read who may read pods.
        "spark.authenticate.secret.file": pods.SPARK_SECRET,
        "spark.driver.host": "$(POD_IP)",
        "spark.driver.bindAddress": "$(POD_IP)",
        "spark.driver.port": str(names.RPC_PORT),
        "spark.driver.blockManager.port": str(names.BLOCK_PORT),
        "spark.kubernetes.namespace": "$(POD_NAMESPACE)",
        # Executors get this pod as their one owner.
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.authenticate.executor.serviceAccountName": account,
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy,
        "spark.kubernetes.executor.podTemplateFile": EXECUTOR_TEMPLATE,
        "spark.kubernetes.executor.podTemplateContainerName": CONTAINER,
        # An executor's ConfigMap outlives a driver that is killed (SPARK-37856); ours needs none.
        "spark.kubernetes.executor.disableConfigMap": "true",
        # Nor does it make Services and claims: without these it would look for some to delete, and need the right.
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.executor.request.cores": pods.cpu(executors),
        **({"spark.kubernetes.executor.limit.cores": executors.cpu_limit} if executors.cpu_limit is not None else {}),
        "spark.executor.memory": f"{pods.mebibytes(executors.memory)}m",
        "spark.executor.memoryOverhead": f"{pods.overhead(executors)}m",
    }
