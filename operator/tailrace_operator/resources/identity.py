"""The driver's ServiceAccount and its RoleBinding to the ClusterRole that the chart brings. Pure."""

from typing import Any

from tailrace_operator.resources import names


def service_account(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": names.driver(name), "labels": names.labels(name, "driver")},
    }


def role_binding(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": names.driver(name), "labels": names.labels(name, "driver")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": names.DRIVER_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": names.driver(name), "namespace": namespace}],
    }
