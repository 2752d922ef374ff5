"""The conversation with a command in a pod. A real one is held in integration/cluster/test_stream.py."""

import http.client
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tailrace.cli.console import cluster_actions
from tailrace.cli.console.cluster_fleet import ClusterReplicator
from tailrace.cli.console.pod_commands import CommandEnd, conversation, path_of, refusal_of
from tailrace.cli.console.refusal import ApiRefusal


def frame(payload: bytes, kind: int = 2, *, final: bool = True) -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes([size])
    else:
        length = b"\x7e" + struct.pack("!H", size) if size < 1 << 16 else b"\x7f" + struct.pack("!Q", size)
    return bytes([(0x80 if final else 0) | kind]) + length + payload


def status(code: int | None) -> bytes:
    if code == 0:
        return b"\x03" + json.dumps({"status": "Success"}).encode()
    causes = [] if code is None else [{"reason": "ExitCode", "message": str(code)}]
    failed = {"status": "Failure", "message": "container not found", "details": {"causes": causes}}
    return b"\x03" + json.dumps(failed).encode()


class Talk:
    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.answered = bytearray()

    def hold(self, *frames: bytes, most: int = 1 << 20) -> CommandEnd:
        """The other side sends these, and keeps what it is told."""

        def serve() -> None:
            with suppress(OSError):
                for one in frames:
                    self.theirs.sendall(one)
                self.theirs.shutdown(socket.SHUT_WR)
                while piece := self.theirs.recv(1 << 16):
                    self.answered += piece

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            with self.ours.makefile("rwb", buffering=0) as stream:
                return conversation(stream, most)
        finally:
            self.ours.close()
            thread.join(10)


@pytest.fixture
def talk() -> Iterator[Talk]:
    made = Talk()
    yield made
    made.theirs.close()


def test_outputs_are_put_together_and_the_code_is_read(talk: Talk) -> None:
    long = "x" * 70_000
    ended = talk.hold(
        frame(b"\x01one "), frame(b"\x01" + long.encode(), final=False), frame(b" end", 0), frame(b"hello", 9),
        frame(b"\x02a warning\n"), frame(b"\x01"), frame(status(3)), frame(b"\x03\xe8", 8),
    )  # fmt: skip
    assert ended == CommandEnd(3, f"one {long} end", "a warning\n")
    # A pong with the words of the ping, masked, and the answer to the end.
    assert talk.answered[:2] == bytes([0x8A, 0x85])
    mask, words = talk.answered[2:6], talk.answered[6:11]
    assert bytes(b ^ mask[i % 4] for i, b in enumerate(words)) == b"hello" and talk.answered[11] == 0x88


def test_a_command_that_did_not_run_has_no_code(talk: Talk) -> None:
    assert talk.hold(frame(status(None)), frame(b"", 8)) == CommandEnd(None, "", "container not found")


@pytest.mark.parametrize(
    ("frames", "most", "why"),
    [
        ([frame(b"\x01half")], 100, "ended before"),
        ([frame(b"\x01" + b"x" * 200)], 100, "more than 100 bytes"),
        ([frame(b"\x01" + b"x" * 60), frame(b"\x01" + b"x" * 60)], 100, "more than 100 bytes"),
        ([b"\x82\x85abcdefghi"], 100, "masks"),
    ],
    ids=["cut", "one-frame", "two-frames", "masked"],
)
def test_what_is_no_conversation_is_refused(talk: Talk, frames: list[bytes], most: int, why: str) -> None:
    with pytest.raises(http.client.HTTPException, match=why):
        talk.hold(*frames, most=most)


def test_the_words_are_the_commands_own() -> None:
    said = "tailrace: warming up\ntailrace: Conflict: there is a cut noon. Fix: Choose another name.\n"
    refused = refusal_of(CommandEnd(2, "", said)).problem
    assert (refused.name, refused.message, refused.fix) == ("Conflict", "there is a cut noon", "Choose another name.")
    refused = refusal_of(CommandEnd(None, "", "container not found")).problem
    assert (refused.name, refused.message) == ("CommandFailed", "the command in the driver's pod: container not found")
    path = path_of("shop", "a-driver-0", ["tailrace", "cut", "a b"])
    assert path.startswith("/api/v1/namespaces/shop/pods/a-driver-0/exec?container=tailrace&stdout=true")
    assert path.endswith("&command=tailrace&command=cut&command=a+b")


@pytest.mark.parametrize(
    ("ended", "ready"),
    [
        (CommandEnd(0, '{"ready": true, "lines": [], "tables": [], "snapshot": {"seconds": 1}}', ""), True),
        (CommandEnd(3, '{"ready": false, "lines": [], "tables": [], "snapshot": {"seconds": 1}}', ""), False),
        (CommandEnd(1, "", "tailrace: InvalidManifest: no such file. Fix: Write it."), None),
    ],
)
def test_a_report_of_doctor_is_shown_whatever_is_in_it(
    ended: CommandEnd, ready: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_actions, "may_execute", lambda one, caller: None)
    monkeypatch.setattr(cluster_actions, "in_driver", lambda one, caller, *words: ended)
    one = object.__new__(ClusterReplicator)
    one.item = {"spec": {"tables": {"include": ["a.*"]}}}
    if ready is None:
        with pytest.raises(ApiRefusal, match="no such file"):
            one.assessment("a caller")
    else:
        assert one.assessment("a caller").ready is ready
