"""Runs a command in a driver's pod, as `kubectl exec` does: through the API server, with the caller's own token.

The API server speaks WebSocket for it (RFC 6455, protocol v5.channel.k8s.io): each message begins with the number of a
channel, 1 and 2 for the command's two outputs, 3 for how it ended.
"""

import base64
import http.client
import json
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from socket import SocketIO
from urllib.parse import quote, urlencode

from tailrace.cli.console.refusal import ApiRefusal

PROTOCOLS = "v5.channel.k8s.io, v4.channel.k8s.io"
CONTAINER = "tailrace"
OUTPUT, ERRORS, ENDED = 1, 2, 3
CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FAULT = re.compile(r"tailrace: (?P<name>[A-Z]\w+): (?P<message>.*?)(?:\. Fix: (?P<fix>.*))?$", re.MULTILINE)
"""A command's last words."""


@dataclass(frozen=True)
class CommandEnd:
    """The end of a command. `code` None: it did not run to its end; `errors` then says why."""

    code: int | None
    output: str
    errors: str


def path_of(namespace: str, pod: str, command: Sequence[str]) -> str:
    asked = [("container", CONTAINER), ("stdout", "true"), ("stderr", "true"), *(("command", word) for word in command)]
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/exec?{urlencode(asked)}"


def handshake() -> dict[str, str]:
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Protocol": PROTOCOLS,
    }


def conversation(stream: SocketIO, most: int) -> CommandEnd:
    """Reads until the command has ended. Raises `http.client.HTTPException` for what is no such conversation."""
    said: dict[int, bytearray] = {OUTPUT: bytearray(), ERRORS: bytearray(), ENDED: bytearray()}
    message = bytearray()
    while True:
        final, kind, payload = _frame(stream, most)
        if kind == PING:
            _send(stream, PONG, payload)
        if kind == CLOSE:
            _send(stream, CLOSE, payload[:2])
            break
        if kind not in (CONTINUED, TEXT, BINARY):
            continue
        message += payload
        if not final:
            continue
        if message and message[0] in said:
            said[message[0]] += message[1:]
        message.clear()
        if sum(map(len, said.values())) > most:
            raise http.client.HTTPException(f"the command says more than {most} bytes")
    output, errors = (said[n].decode("utf-8", "replace") for n in (OUTPUT, ERRORS))
    code, why = _outcome(bytes(said[ENDED]))
    return CommandEnd(code, output, errors if code is not None else why)


def _frame(stream: SocketIO, most: int) -> tuple[bool, int, bytes]:
    first, second = _exactly(stream, 2)
    length = second & 0x7F
    if second & 0x80:
        raise http.client.HTTPException("the API server masks its frames")
    if length == 126:
        (length,) = struct.unpack("!H", _exactly(stream, 2))
    elif length == 127:
        (length,) = struct.unpack("!Q", _exactly(stream, 8))
    if length > most:
        raise http.client.HTTPException(f"the command says more than {most} bytes")
    return bool(first & 0x80), first & 0x0F, _exactly(stream, length)


def _exactly(stream: SocketIO, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = stream.read(size - len(found))
        if not piece:
            raise http.client.HTTPException("the connection ended before the command did")
        found += piece
    return bytes(found)


def _send(stream: SocketIO, kind: int, payload: bytes) -> None:
    """A client masks what it sends; control frames are short."""
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload[:125]))
    stream.write(bytes([0x80 | kind, 0x80 | len(masked)]) + mask + masked)


def _outcome(document: bytes) -> tuple[int | None, str]:
    try:
        status = json.loads(document)
        if status["status"] == "Success":
            return 0, ""
        causes = (status.get("details") or {}).get("causes") or ()
        codes = [int(cause["message"]) for cause in causes if cause.get("reason") == "ExitCode"]
        return (codes[0] if codes else None), str(status.get("message", "it did not run"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, "the API server did not say how the command ended"


def refusal_of(ended: CommandEnd) -> ApiRefusal:
    """A command's own words where it has any."""
    found = next(reversed(list(FAULT.finditer(ended.errors))), None)
    if found is None:
        lines = ended.errors.strip().splitlines() or [f"it ended with {ended.code}"]
        return ApiRefusal(502, "CommandFailed", f"the command in the driver's pod: {lines[-1][:500]}")
    return ApiRefusal(409, found["name"], found["message"], found["fix"] or "")
