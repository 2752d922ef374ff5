"""A stand-in for Google Cloud Storage, on loopback and in memory: what the client asks of its XML interface, as
Google's documentation has it. (No emulator was found that creates an object in this way only if it is absent.)"""

import json
import re
import ssl
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typing_extensions import override

PAGE = 3
"""Objects of a page of a list: a thousand there."""
CREATED = "x-goog-if-generation-match"
"""The header whose 0 lets an object be created only if there is none."""


class GoogleStorage:
    """`environment` leads clients to it; `new_bucket()` makes an empty bucket."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.turn = threading.Lock()
        self.buckets: dict[str, dict[str, tuple[bytes, datetime]]] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        """Parts of objects that are not there yet, by the upload's id."""
        self._server: ThreadingHTTPServer | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "GOOGLE_SERVICE_ACCOUNT": str(self._folder / "account.json"),
            "SSL_CERT_FILE": str(self._folder / "authority.pem"),
        }

    def __enter__(self) -> Self:
        _certify(self._folder)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("GoogleAnswers", (_Answers,), {"storage": self}))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "server.pem")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        account = {
            "gcs_base_url": f"https://127.0.0.1:{self._server.server_port}",
            "disable_oauth": True,
            **dict.fromkeys(("client_email", "private_key", "private_key_id"), ""),
        }
        (self._folder / "account.json").write_text(json.dumps(account))
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def new_bucket(self) -> str:
        name = f"bucket-{len(self.buckets) + 1}"
        self.buckets[name] = {}
        return name


class _Answers(BaseHTTPRequestHandler):
    storage: GoogleStorage
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_PUT(self) -> None:
        objects, key, asked, body = self._asked()
        if objects is None:
            self._refuse(404, "NoSuchBucket")
        elif "uploadId" in asked:
            self.storage.uploads[asked["uploadId"]][int(asked["partNumber"])] = body
            self._answer(200, headers={"ETag": _tag(body)})
        elif self._put(objects, key, body):
            self._answer(200, headers={"ETag": _tag(body)})

    def do_POST(self) -> None:
        objects, key, asked, body = self._asked()
        if objects is None:
            self._refuse(404, "NoSuchBucket")
        elif "uploads" in asked:
            upload = f"upload-{len(self.storage.uploads)}"
            self.storage.uploads[upload] = {}
            told = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            self._answer(200, told)
        else:
            parts = self.storage.uploads[asked["uploadId"]]
            numbers = map(int, re.findall(rb"<PartNumber>(\d+)</PartNumber>", body))
            if self._put(objects, key, b"".join(parts[number] for number in numbers)):
                del self.storage.uploads[asked["uploadId"]]
                told = f"<Key>{escape(key)}</Key><ETag>{escape(_tag(objects[key][0]))}</ETag>"
                self._answer(200, f"<CompleteMultipartUploadResult>{told}</CompleteMultipartUploadResult>")

    def do_DELETE(self) -> None:
        objects, key, asked, _ = self._asked()
        if "uploadId" in asked:
            self.storage.uploads.pop(asked["uploadId"], None)
            self._answer(204)
        elif objects is None or objects.pop(key, None) is None:
            self._refuse(404, "NoSuchKey" if objects is not None else "NoSuchBucket")
        else:
            self._answer(204)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        objects, key, asked, _ = self._asked()
        if objects is None:
            self._refuse(404, "NoSuchBucket")
        elif not key:
            self._list(objects, asked)
        elif key not in objects:
            self._refuse(404, "NoSuchKey")
        else:
            self._give(*objects[key])

    def _give(self, data: bytes, since: datetime) -> None:
        headers, status, given = {"ETag": _tag(data), "Last-Modified": format_datetime(since, usegmt=True)}, 200, data
        ranged = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if ranged is not None:
            begin = int(ranged[1]) if ranged[1] else max(len(data) - int(ranged[2]), 0)
            end = min(int(ranged[2]) + 1, len(data)) if ranged[1] and ranged[2] else len(data)
            given, status = data[begin:end], 206
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
        self._answer(status, given, headers)

    def _list(self, objects: Mapping[str, tuple[bytes, datetime]], asked: Mapping[str, str]) -> None:
        """A page, as the second version of lists has it."""
        after = max(asked.get("start-after", ""), asked.get("continuation-token", ""))
        with self.storage.turn:
            found = sorted(key for key in objects if key.startswith(asked.get("prefix", "")) and key > after)
            page = [(key, *objects[key]) for key in found[:PAGE]]
        told = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>{escape(_tag(data))}</ETag>"
            f"<LastModified>{since.strftime('%Y-%m-%dT%H:%M:%S.%fZ')}</LastModified></Contents>"
            for key, data, since in page
        )
        if len(found) > PAGE:
            told += (
                f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>"
            )
        self._answer(200, f"<ListBucketResult>{told}</ListBucketResult>")

    def _put(self, objects: dict[str, tuple[bytes, datetime]], key: str, data: bytes) -> bool:
        with self.storage.turn:
            refused = self.headers.get(CREATED) == "0" and key in objects
            if not refused:
                objects[key] = data, datetime.now(UTC)
        if refused:
            self._refuse(412, "PreconditionFailed")
        return not refused

    def _asked(self) -> tuple[dict[str, tuple[bytes, datetime]] | None, str, dict[str, str], bytes]:
        """Objects of the bucket, key, parameters, body."""
        address = urlsplit(self.path)
        bucket, _, key = address.path.removeprefix("/").partition("/")
        asked = {name: values[0] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return self.storage.buckets.get(unquote(bucket)), unquote(key), asked, body

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>")

    def _answer(self, status: int, body: str | bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        sent = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(sent))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    @override
    def log_message(self, *_: Any) -> None:
        return


def _tag(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


def _certify(folder: Path) -> None:
    """Write an authority's certificate, and the server's with its key."""
    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    made = _certificate("authority", authority, authority, x509.BasicConstraints(ca=True, path_length=None))
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    pem = serialization.Encoding.PEM
    (folder / "authority.pem").write_bytes(made.public_bytes(pem))
    key = own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.pem").write_bytes(_certificate("server", own, authority, address).public_bytes(pem) + key)


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, by: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
) -> x509.Certificate:
    subject, issuer = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, n)]) for n in (name, "authority"))
    builder, now = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer), datetime.now(UTC)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=9))
    return builder.add_extension(extension, critical=name == "authority").sign(by, hashes.SHA256())
