"""The tests' Kubernetes API is a real one."""

import json
import time

import pytest
from kubernetes import client

from cluster import places
from support.kube import KubeApi

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "probes.tests.tailrace.dev"},
    "spec": {
        "group": "tests.tailrace.dev",
        "scope": "Namespaced",
        "names": {"kind": "Probe", "plural": "probes", "singular": "probe"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"size": {"type": "integer", "default": 7}},
                                "x-kubernetes-validations": [
                                    {"rule": "self.size < 10", "message": "size is below 10; make it smaller"}
                                ],
                            }
                        },
                    }
                },
            }
        ],
    },
}


def probe(name: str, spec: dict[str, object]) -> dict[str, object]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "tests.tailrace.dev/v1", "kind": "Probe", "metadata": metadata, "spec": spec}


def test_the_api_server_is_of_the_version_that_the_module_names(kube_api: KubeApi) -> None:
    with kube_api.client() as connection:
        assert client.VersionApi(connection).get_code().git_version == places.kubernetes_version()


def test_a_custom_resource_gets_its_defaults_and_its_rules_refuse(kube_api: KubeApi) -> None:
    kube_api.apply(CRD)
    kube_api.kubectl("wait", "--for=condition=Established", "crd/probes.tests.tailrace.dev", "--timeout=30s")
    # Server-side apply would refuse the unknown field; creation drops it where the client does not ask for strictness.
    small = json.dumps(probe("small", {"unknown": 1}))
    kube_api.kubectl("create", "--validate=ignore", "-f", "-", stdin=small)
    assert kube_api.kubectl("get", "probes", "small", "-o", "jsonpath={.spec}") == '{"size":7}'
    with pytest.raises(AssertionError, match="make it smaller"):
        kube_api.apply(probe("large", {"size": 11}))


def test_one_that_rested_takes_no_time_and_then_goes_on(kube_api: KubeApi) -> None:
    kube_api.kubectl("create", "namespace", "before")
    kube_api.rest()
    spent = [program.cpu_seconds() for program in kube_api.programs]
    time.sleep(2)
    assert [program.cpu_seconds() for program in kube_api.programs] == spent
    kube_api.go_on()
    assert "before" in kube_api.kubectl("get", "namespaces", "-o", "name")
    kube_api.kubectl("create", "namespace", "after")
