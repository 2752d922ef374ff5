"""The API server, for the console in a cluster: a few questions over HTTPS, and what a driver answers by HTTP.

The console reads with its own account. Whether a caller may see or do something, the API server says by the caller's
token, which is held for the length of a request and written nowhere.
"""

import hashlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from pydantic import BaseModel
from typing_extensions import override

from tailrace.cli.console import pod_commands
from tailrace.cli.console.pod_commands import CommandEnd
from tailrace.cli.console.refusal import ApiRefusal
from tailrace.contract.base import GROUP, VERSION
from tailrace.driver.process.run_dir import NotRunning
from tailrace.errors import InvalidManifest, Retry

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder in which a pod finds the token and the certificate of its ServiceAccount."""
ANSWER_SECONDS = 10.0
DRIVER_SECONDS = 5.0
COMMAND_SECONDS = 60.0
"""Seconds that a command in a driver's pod has."""
MOST_LINE, MOST_HEADERS = 1 << 14, 100
MOST_BYTES = 64 << 20
"""The limit for an answer of the API server: 500 Replicators with 20 failing tables each take 15 MiB."""
PAGE = 250
"""Resources in one answer of the API server."""
MOST_DRIVER_BYTES = 8 << 20
"""The limit for an answer of a driver, which is a tenant's pod: as much as the operator takes."""
RIGHTS_SECONDS = 30.0
"""The age at which a caller's right is asked for again; before an action it always is."""
MOST_RIGHTS = 20_000
MERGE = "application/merge-patch+json"
OURS = "Give the console's ServiceAccount its role: the chart's `rbac.create`."
TOKEN_FIX = "Enter a token of Kubernetes that is valid, such as that of `kubectl create token`."
Document = dict[str, Any]
Answer = TypeVar("Answer", bound=BaseModel)
Key = TypeVar("Key")
Kept = TypeVar("Kept")


@dataclass(frozen=True)
class Right:
    """One verb on one kind. `namespace` empty: in all of them."""

    verb: str
    resource: str
    namespace: str = ""
    group: str = GROUP
    """Its API group; empty: the core's."""
    subresource: str = ""

    @override
    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        kind += f"/{self.subresource}" if self.subresource else ""
        place = f"in namespace {self.namespace}" if self.namespace else "in all namespaces"
        return f"{self.verb} {kind} {place}"


class ClusterApi:
    """One API server. Safe for threads."""

    def __init__(
        self,
        server: str,
        account: Path = ACCOUNT,
        *,
        driver_url: Callable[[str, str], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`account`: the folder with `token` and `ca.crt`. `driver_url`: where the driver of a
        namespace's Replicator answers; None: at its Service."""
        place = urlsplit(server)
        if place.scheme != "https" or place.hostname is None:
            raise InvalidManifest(f"{server} is not the address of an API server", "Write https://HOST:PORT.")
        self._host, self._port = place.hostname, place.port or 443
        self._account, self._driver_url, self._clock = account, driver_url or service, clock
        self._lock = threading.Lock()
        try:
            self._tls = self._trusted()
        except OSError as error:
            raise InvalidManifest(
                f"cannot read {account / 'ca.crt'}: {error.strerror or error}", "Run in a pod with a ServiceAccount."
            ) from error
        self.changes = 0
        """The number of changes that were made through it."""
        self._rights: dict[tuple[bytes, Right], tuple[float, bool]] = {}
        self._users: dict[bytes, tuple[float, str]] = {}

    def _trusted(self) -> tuple[bytes, ssl.SSLContext]:
        """The authorities of the account's file, and what checks a certificate by them."""
        file = self._account / "ca.crt"
        found, context = file.read_bytes(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cafile=file)
        if not context.cert_store_stats()["x509_ca"]:
            raise ssl.SSLError("there is no authority in it")
        return found, context

    def _context(self) -> ssl.SSLContext:
        """The kubelet replaces the file when the cluster gets another authority. An unreadable file, or half of one,
        leaves the last one in use."""
        with suppress(OSError, ssl.SSLError, ValueError):
            if (self._account / "ca.crt").read_bytes() != self._tls[0]:
                self._tls = self._trusted()
        return self._tls[1]

    # ---- with the console's account ----

    def listed(self, resource: str, namespace: str | None) -> list[Document]:
        """All of a kind, by pages: one answer of all could be longer than any limit. Pages that the API server no
        longer has (410) are asked for once more from the first."""
        for _ in range(2):
            found = self._pages(f"{_group(namespace)}/{resource}")
            if found is not None:
                return found
        raise Retry(f"{resource} change faster than the API server lists them", "Try again.")

    def _pages(self, path: str) -> list[Document] | None:
        """None: the next page is gone."""
        items: list[Document] = []
        following = ""
        while True:
            query = urlencode({"limit": PAGE} | ({"continue": following} if following else {}))
            code, answer = self._read(f"{path}?{query}")
            if code == 410:
                return None
            for item in answer.get("items", ()):
                item.get("metadata", {}).pop("managedFields", None)  # the larger part of many
                items.append(item)
            following = answer.get("metadata", {}).get("continue", "")
            if not following:
                return items

    def events(self, namespace: str, kind: str, name: str) -> list[Document]:
        chosen = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}", "limit": "200"}
        _, answer = self._read(f"/api/v1/namespaces/{quote(namespace)}/events?{urlencode(chosen)}")
        return list(answer.get("items", ()))

    def _read(self, path: str) -> tuple[int, Document]:
        """Code 200 or 410 (of a page), and the answer."""
        try:
            token = (self._account / "token").read_text().strip()  # the kubelet replaces it every hour
        except OSError as error:
            raise Retry(f"cannot read {self._account / 'token'}: {error.strerror}", OURS) from error
        code, answer = self._send("GET", path, token)
        if code not in (200, 410):
            raise Retry(f"the console's account: {answer.get('message', code)}", OURS)
        return code, answer

    # ---- with the caller's token ----

    def user(self, caller: str) -> str:
        """The name of the token's user, which is asked for again when rights are."""
        key, now = hashlib.sha256(caller.encode()).digest(), self._clock()
        with self._lock:
            at, known = self._users.get(key, (now - RIGHTS_SECONDS, ""))
        if now - at < RIGHTS_SECONDS:
            return known
        answer = self._called("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", caller, {
            "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
        })  # fmt: skip
        name = str(answer["status"]["userInfo"]["username"])
        self._keep(self._users, key, (now, name))
        return name

    def _keep(self, answers: dict[Key, Kept], key: Key, answer: Kept) -> None:
        with self._lock:
            while len(answers) >= MOST_RIGHTS:
                answers.pop(next(iter(answers)))
            answers[key] = answer

    def may(self, caller: str, right: Right, *, fresh: bool = False) -> bool:
        """SelfSubjectAccessReview. Raises `ApiRefusal` 401 for a token that the API server does not know."""
        key = (hashlib.sha256(caller.encode()).digest(), right)
        now = self._clock()
        with self._lock:
            at, allowed = self._rights.get(key, (now - RIGHTS_SECONDS, False))
        if now - at < RIGHTS_SECONDS and not fresh:
            return allowed
        about = {"verb": right.verb, "group": right.group, "resource": right.resource, "namespace": right.namespace}
        about |= {"subresource": right.subresource} if right.subresource else {}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": about},
        }
        answer = self._called("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", caller, body)
        allowed = answer.get("status", {}).get("allowed") is True
        self._keep(self._rights, key, (now, allowed))
        return allowed

    def create(self, caller: str, resource: str, namespace: str, document: Document) -> Document:
        return self._called("POST", f"{_group(namespace)}/{resource}?{MANAGER}", caller, document)

    def patch(self, caller: str, resource: str, namespace: str, name: str, change: Document) -> Document:
        return self._called("PATCH", f"{_group(namespace)}/{resource}/{quote(name)}?{MANAGER}", caller, change)

    def delete(self, caller: str, resource: str, namespace: str, name: str) -> None:
        self._called("DELETE", f"{_group(namespace)}/{resource}/{quote(name)}", caller)

    def execute(self, caller: str, namespace: str, pod: str, command: Sequence[str]) -> CommandEnd:
        """How a command in a driver's pod ended. Raises `ApiRefusal` in the words of the API server."""
        connection = http.client.HTTPSConnection(
            self._host, self._port, context=self._context(), timeout=COMMAND_SECONDS
        )
        headers = {"Authorization": f"Bearer {_sendable(caller)}", **pod_commands.handshake()}
        late = threading.Event()
        watch: threading.Timer | None = None
        try:
            connection.connect()
            watch = threading.Timer(COMMAND_SECONDS, _cut, [connection.sock, late])
            watch.daemon = True
            watch.start()
            connection.request("GET", pod_commands.path_of(namespace, pod, command), None, headers)
            stream = connection.sock.makefile("rwb", buffering=0)
            with stream:
                code, raw = _upgraded(stream)
                if code != 101:
                    self._refuse(code, _object(raw))
                return pod_commands.conversation(stream, MOST_DRIVER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            why = f"takes more than {COMMAND_SECONDS:g} s" if late.is_set() else f"{type(error).__name__}: {error}"
            raise Retry(
                f"the command in pod {namespace}/{pod}: {why}", "Look whether it was done, and repeat it."
            ) from error
        finally:
            if watch is not None:
                watch.cancel()
            connection.close()

    def _called(self, method: str, path: str, caller: str, body: Document | None = None) -> Document:
        code, answer = self._send(method, path, caller, body)
        if code < 300:
            self.changes += not path.startswith(REVIEWS)
            return answer
        self._refuse(code, answer)

    def _refuse(self, code: int, answer: Document) -> NoReturn:
        message = str(answer.get("message", "")) or f"the API server answered {code}"
        if code == 401:
            raise ApiRefusal(401, "Unauthorized", "the API server does not accept the token", TOKEN_FIX)
        if code in REFUSALS:
            raise ApiRefusal(*REFUSALS[code][:2], message, REFUSALS[code][2])
        raise Retry(f"the API server: {message}", "Try again.")

    def _send(self, method: str, path: str, token: str, body: Document | None = None) -> tuple[int, Document]:
        headers = {"Accept": "application/json", "Authorization": f"Bearer {_sendable(token)}"}
        if body is not None:
            headers["Content-Type"] = MERGE if method == "PATCH" else "application/json"
        connection = http.client.HTTPSConnection(
            self._host, self._port, context=self._context(), timeout=ANSWER_SECONDS
        )
        try:
            code, raw = _exchange(connection, method, path, headers, body, most=MOST_BYTES, seconds=ANSWER_SECONDS)
        except (OSError, http.client.HTTPException, AnswerTooLong) as error:
            raise Retry(f"the API server does not answer: {type(error).__name__}: {error}", "Try again.") from error
        finally:
            connection.close()
        return code, _object(raw)

    # ---- drivers ----

    def driver(
        self, namespace: str, name: str, path: str, kind: type[Answer], *, most: int = MOST_DRIVER_BYTES
    ) -> Answer:
        """The answer of a driver, which is asked without a token. It is a tenant's pod: no redirect is followed, and
        the answer is bounded. Fields of a newer version are left out."""
        place = urlsplit(self._driver_url(namespace, name))
        assert place.hostname is not None
        connection = http.client.HTTPConnection(place.hostname, place.port or 80, timeout=DRIVER_SECONDS)
        try:
            connection.sock = _reached(connection.host, connection.port, DRIVER_SECONDS)
            code, raw = _exchange(
                connection, "GET", path, {"Accept": "application/json"}, most=most, seconds=DRIVER_SECONDS
            )
        except (OSError, http.client.HTTPException, AnswerTooLong) as error:
            # Whoever answers there need not be a driver: its words are not told.
            why = str(error) if isinstance(error, AnswerTooLong) else type(error).__name__
            raise NotRunning(
                f"the driver of {namespace}/{name} does not answer the console: {why}",
                "See `kubectl get pods`; a NetworkPolicy must let the console reach port 8090.",
            ) from error
        finally:
            connection.close()
        if code == 404:
            raise ApiRefusal(404, "NotFound", f"the driver of {namespace}/{name} knows no {path[:200]}")
        other = f"the driver of {namespace}/{name} is of another version"
        if code != 200:
            raise NotRunning(f"{other}: it answered {code}", "Run the console and the driver in the same version.")
        try:
            return kind.model_validate_json(raw, extra="ignore")
        except ValueError as error:  # of the model, or of the encoding
            raise NotRunning(
                f"{other}: its answer is not one of a driver", "Run the console and the driver in the same version."
            ) from error


REFUSALS = {
    400: (422, "InvalidManifest", "Correct what the message names."),
    403: (403, "Forbidden", "Ask for the right, or use another token."),
    404: (404, "NotFound", "It may have been deleted meanwhile."),
    409: (409, "Conflict", "Look again, and repeat it."),
    422: (422, "InvalidManifest", "Correct what the message names."),
}
"""Code of the API server -> the console's code and name, and the fix."""
REVIEWS = ("/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/")
"""Questions that are asked by POST, and change nothing."""
MANAGER = "fieldManager=tailrace-console"


def service(namespace: str, name: str) -> str:
    """The address of the headless Service that the operator gives each driver."""
    return f"http://{name}-driver.{namespace}.svc:8090"


def _sendable(token: str) -> str:
    if not token.isascii() or not token.isprintable():
        raise ApiRefusal(401, "Unauthorized", "the token has characters that no token has", TOKEN_FIX)
    return token


def _object(raw: bytes) -> Document:
    """The answer as an object; empty for anything else."""
    try:
        found = json.loads(raw) if raw else {}
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


def _upgraded(stream: socket.SocketIO) -> tuple[int, bytes]:
    """Code and body of the answer to a handshake; 101 has no body, what follows is the conversation."""
    line = stream.readline(MOST_LINE).split()
    if len(line) < 2 or not line[0].startswith(b"HTTP/1.") or not line[1].isdigit():
        raise http.client.BadStatusLine("no answer of HTTP")
    length = 0
    for _ in range(MOST_HEADERS):
        name, _, value = stream.readline(MOST_LINE).partition(b":")
        if not name.strip():
            break
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            length = min(int(value), MOST_DRIVER_BYTES)
    code, body = int(line[1]), bytearray()
    while code != 101 and len(body) < length and (piece := stream.read(length - len(body))):
        body += piece
    return code, bytes(body)


class AnswerTooLong(Exception):
    """An answer that is too long, or takes too long."""


def _group(namespace: str | None) -> str:
    place = f"/namespaces/{quote(namespace)}" if namespace is not None else ""
    return f"/apis/{GROUP}/{VERSION}{place}"


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    headers: dict[str, str],
    body: Document | None = None,
    *,
    most: int,
    seconds: float,
) -> tuple[int, bytes]:
    """Code and body. The connection is cut after `seconds`: who answers may send its headers a byte at a time."""
    if connection.sock is None:
        connection.connect()
    found, late = bytearray(), threading.Event()
    watch = threading.Timer(seconds, _cut, [connection.sock, late])
    watch.daemon = True
    watch.start()
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        with connection.getresponse() as answer:
            while piece := answer.read1(1 << 16):
                found += piece
                if len(found) > most:
                    raise AnswerTooLong(f"the answer has more than {most} bytes")
    except (OSError, http.client.HTTPException):
        if not late.is_set():
            raise
    finally:
        watch.cancel()
    if late.is_set():
        raise AnswerTooLong(f"the answer takes more than {seconds:g} s")
    return answer.status, bytes(found)


def _reached(host: str, port: int, seconds: float) -> socket.socket:
    """A connection. All addresses of the name share the time: a tenant says how many there are."""
    end = time.monotonic() + seconds
    error: OSError = TimeoutError()
    for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if (left := end - time.monotonic()) <= 0:
            break
        try:
            return socket.create_connection((str(address[0]), port), timeout=left)
        except OSError as found:
            error = found
    raise error


def _cut(connection: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # also below TLS, whose own would not wake who reads
