"""Objects of a Kubernetes API, read over one connection: tests ask ten times a second, and each start of kubectl costs
as much as fifty such questions."""

import base64
import http.client
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

Json = dict[str, Any]


class KubeObjects:
    """For one thread. `kubeconfig`: the administrator's, with a client certificate."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._connection: http.client.HTTPSConnection | None = None
        self._folders: dict[str, str] = {}
        """Every name of a namespaced kind (`repl`, `pods`, `StatefulSet`) -> the start of its paths and its plural."""

    def get(self, namespace: str, kind: str, name: str) -> Json | None:
        """The object; None: there is none. `kind`: any name that kubectl takes."""
        return self._read(self._path(namespace, kind) + f"/{name}")

    def objects(self, namespace: str, kind: str, labels: str = "") -> list[Json]:
        """All of them, or those with such labels (`a=b,c=d`)."""
        found = self._read(f"{self._path(namespace, kind)}?{urlencode({'labelSelector': labels})}")
        return [] if found is None else list(found["items"])

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _path(self, namespace: str, kind: str) -> str:
        if kind.lower() not in self._folders:
            self._discover()
        start, plural = self._folders[kind.lower()].rsplit(" ", 1)
        return f"{start}/namespaces/{namespace}/{plural}"

    def _discover(self) -> None:
        """Names that the core has win over those of groups, as with kubectl."""
        groups = (self._read("/apis") or {})["groups"]
        for start in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)):
            for one in (self._read(start) or {"resources": ()})["resources"]:
                if one["namespaced"] and "/" not in one["name"]:
                    for name in (one["name"], one["singularName"], one["kind"].lower(), *one.get("shortNames", ())):
                        self._folders.setdefault(name, f"{start} {one['name']}")

    def _read(self, path: str) -> Json | None:
        """None: 404. A connection that ended meanwhile is made anew."""
        status, body = self._ask(path)
        if status == 404:
            return None
        assert status == 200, f"GET {path}: {status} {body[:500]!r}"
        found: Json = json.loads(body)
        return found

    def _ask(self, path: str) -> tuple[int, bytes]:
        try:
            return self._once(path)
        except (OSError, http.client.HTTPException):
            self.close()
            return self._once(path)

    def _once(self, path: str) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _connect(self) -> http.client.HTTPSConnection:
        document = yaml.safe_load(self._kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        with tempfile.TemporaryDirectory() as folder:
            context = ssl.create_default_context(cafile=_file(cluster, "certificate-authority", folder))
            context.load_cert_chain(_file(user, "client-certificate", folder), _file(user, "client-key", folder))
        place = urlsplit(cluster["server"])
        assert place.hostname is not None
        return http.client.HTTPSConnection(place.hostname, place.port, context=context, timeout=60)


def _file(part: Json, name: str, folder: str) -> str:
    """The file that a kubeconfig names, or one with what it holds inline."""
    if name in part:
        return str(part[name])
    path = Path(folder) / name
    path.write_bytes(base64.b64decode(part[f"{name}-data"]))
    return str(path)
