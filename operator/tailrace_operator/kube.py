"""A client of the Kubernetes API for plain documents: the operator's kinds and their paths, one call, typed errors.

`observe` lists and watches with it, `act` writes. Connections, certificates and tokens are `kubernetes.aio`'s.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote

import aiohttp
from kubernetes.aio import client, config

from tailrace.contract.resources import GROUP, VERSION
from tailrace.errors import InvalidManifest, Retry, TailraceError
from tailrace_operator import metrics

TIMEOUT = 30.0
"""Seconds for any single answer."""
CALLS = 16
"""At the same time, without watches and the lease: many objects may be due at once."""
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
UNTYPED = "failed to create typed patch object"
"""Text with which the API server refuses an applied object with an unknown field; its code is 500."""
NAMESPACE_ENDS = "is being terminated"
"""Text in the API server's refusal to create an object in a namespace that is being deleted."""
METADATA_ONLY = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"

_PREFIXES = {
    "Replicator": (f"apis/{GROUP}/{VERSION}", "replicators"),
    "SnapshotRequest": (f"apis/{GROUP}/{VERSION}", "snapshotrequests"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "Job": ("apis/batch/v1", "jobs"),
    "CronJob": ("apis/batch/v1", "cronjobs"),
    "RoleBinding": ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "Lease": ("apis/coordination.k8s.io/v1", "leases"),
    "Pod": ("api/v1", "pods"),
    "Service": ("api/v1", "services"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "Secret": ("api/v1", "secrets"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Event": ("api/v1", "events"),
}
Document = dict[str, Any]


class ApiRefused(TailraceError):
    """The API server does not accept what was sent; sending it again would not help."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message, "")
        self.code, self.reason = code, reason
        self.args = (code, reason, message)


class ApiNotFound(ApiRefused):
    """The object is not there."""


class ApiConflict(ApiRefused):
    """The object changed since it was read, or exists already."""


class ApiUnavailable(Retry):
    """The API server did not answer, or asked to come back later."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message, "")
        self.after = after
        """Seconds that the API server asked to wait."""
        self.args = (message, after)


@dataclass(frozen=True)
class Where:
    """A collection (`name` None) or an object. Without namespace: all namespaces."""

    kind: str
    namespace: str | None
    name: str | None = None
    sub: str | None = None

    @property
    def path(self) -> str:
        prefix, plural = _PREFIXES[self.kind]
        space = f"/namespaces/{quote(self.namespace)}" if self.namespace is not None else ""
        name = f"/{quote(self.name)}" if self.name is not None else ""
        return f"/{prefix}{space}/{plural}{name}" + (f"/{self.sub}" if self.sub else "")


class Kube:
    """Use as an async context manager."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._slots = asyncio.Semaphore(CALLS)

    @classmethod
    async def connect(cls, kubeconfig: str | None) -> "Kube":
        """The pod's service account, or a kubeconfig file."""
        settings = client.Configuration()
        try:
            if kubeconfig is None:
                config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]  # untyped in kubernetes
            else:
                await config.load_kube_config(kubeconfig, client_configuration=settings)  # type: ignore[no-untyped-call]  # untyped in kubernetes
        except config.ConfigException as error:
            raise InvalidManifest(
                f"no access to a cluster: {error}", "Run in a pod with a service account, or set KUBECONFIG."
            ) from error
        # No limit: every watch holds a connection, a dozen in each namespace; the lease must never wait for one.
        settings.connection_pool_maxsize = 0
        return cls(client.ApiClient(settings))

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]  # untyped in kubernetes

    async def call(
        self,
        method: str,
        where: Where,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Document:
        """The answer's document; raises `ApiRefused` or `ApiUnavailable`. The lease does not wait."""
        async with contextlib.nullcontext() if where.kind == "Lease" else self._slots:
            return await self._call(method, where, query=query, body=body, content=content, accept=accept)

    async def _call(self, method: str, where: Where, **given: Any) -> Document:
        response = await self.open(method, where, **given, timeout=TIMEOUT)
        try:
            raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiUnavailable(f"{method} {where.path}: the answer was cut off: {error!r}") from error
        finally:
            response.release()
        return cast(Document, json.loads(raw)) if raw else {}

    async def open(
        self,
        method: str,
        where: Where,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        content: str = "application/json",
        accept: str = "application/json",
        timeout: float,
    ) -> aiohttp.ClientResponse:
        """The open response of a call that succeeded so far; a watch reads it line by line."""
        headers = {"Accept": accept, "Content-Type": content}
        request = await self._api.param_serialize(
            method, where.path, query_params=dict(query or {}), header_params=headers, auth_settings=["BearerToken"]
        )
        verb, url, sent, _, _ = request
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=10.0)
        try:
            answer = await self._api.call_api(verb, url, sent, body, _request_timeout=limit)
            response = cast(aiohttp.ClientResponse, answer.response)
            metrics.API_CALLS.labels(method, where.kind, str(response.status)).inc()
            if response.status >= 400:
                await _raise(method, where, response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            metrics.API_CALLS.labels(method, where.kind, "none").inc()
            raise ApiUnavailable(f"{method} {where.path}: no answer: {error!r}") from error
        return response


async def _raise(method: str, where: Where, response: aiohttp.ClientResponse) -> None:
    async with response:
        async with asyncio.timeout(TIMEOUT):
            raw = await response.read()
    try:
        status = json.loads(raw)
        message, reason = str(status.get("message", "")), str(status.get("reason", ""))
    except (ValueError, AttributeError):
        message, reason = raw[:200].decode(errors="replace"), ""
    text = f"{method} {where.path}: {response.status} {message}"
    if message.startswith(UNTYPED):
        raise ApiRefused(422, reason, message)
    if response.status in (408, 429) or response.status >= 500:
        after = response.headers.get("Retry-After", "")
        raise ApiUnavailable(text, float(after) if after.isdigit() else None)
    kinds: dict[int, type[ApiRefused]] = {404: ApiNotFound, 409: ApiConflict}
    raise kinds.get(response.status, ApiRefused)(response.status, reason, message or text)
