"""The repairs that docs/operations.md names for errors of the whole process, executed: refused, repaired, equal.

On the product without a JVM (`support.ddl.in_process`). The error is read from what a start says, the repair is what
the document, or the message itself, tells to do.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ddl.fork_server import ForkServer
from support.ddl.in_process import InProcess, Refused, in_process
from support.postgres import LOCAL_TRUST, PostgresServer
from support.repairs import copied, equal, refused, with_empty_log
from support.unknown_message import WORD, spoiling

COPIER = ("host all copier 127.0.0.1/32 scram-sha-256", "host replication copier 127.0.0.1/32 scram-sha-256")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer(18, hba=(*COPIER, *LOCAL_TRUST)) as started:
        yield started


@pytest.fixture
def one(
    server: PostgresServer, fork_server: ForkServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[InProcess]:
    """Everything is copied, and the Replicator is stopped."""
    with in_process(server, fork_server, tmp_path, request.node.name.removeprefix("test_")[:20]) as made:
        yield made


def test_source_refused(one: InProcess) -> None:
    """The message has the statement."""
    one.sql("CREATE PUBLICATION given FOR ALL TABLES WITH (publish = 'insert')")
    one.spec["source"] = {"postgresql": {"publication": "given"}}
    with pytest.raises(Refused):
        copied(one)
    one.stop(kill=True)
    text = refused(one, "SourceRefused", "ALTER PUBLICATION")
    one.sql(text.partition("`")[2].partition("`")[0])
    one.start()
    equal(one)


def test_authentication_failed(one: InProcess, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("first")
    one.sql("CREATE ROLE copier SUPERUSER LOGIN REPLICATION PASSWORD 'first'")
    one.spec["source"] = {"username": "copier", "passwordFile": str(password)}
    copied(one)
    one.sql("ALTER ROLE copier PASSWORD 'second'")
    refused(one, "AuthenticationFailed")
    password.write_text("second")
    one.start()
    equal(one)


def spoil(one: InProcess) -> None:
    """A record stands in another one's place."""
    *_, before, last = sorted((one.folder / "log" / "journal").glob("[0-9]*.json"))
    shutil.copy(before, last)


def test_corrupt_log(one: InProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder is restored; or an empty change log begins."""
    copied(one)
    shutil.copytree(one.folder / "log", one.folder / "backup")
    spoil(one)
    refused(one, "CorruptLog")
    shutil.rmtree(one.folder / "log")
    shutil.move(one.folder / "backup", one.folder / "log")
    one.start()
    equal(one)
    one.stop()
    spoil(one)
    refused(one, "CorruptLog")
    with_empty_log(one, readable=False)
    equal(one)
    kept = capsys.readouterr().out.splitlines()
    assert [line.split(" tailrace_")[0] for line in kept] == ["replication slot", "publication"]
    assert all("kept: the change log cannot be read" in line for line in kept)


def test_unknown_message(one: InProcess) -> None:
    """The version that knows the message is one that meets the server's own bytes."""
    copied(one)
    with spoiling(one.server.host, one.server.port) as port:
        one.spec["source"] = {"host": "127.0.0.1", "port": port}
        one.start()
        one.sql(f"INSERT INTO s.one VALUES (7000, '{WORD}')")
        for _ in ("now", "at the next start"):
            with pytest.raises(Refused, match=r"UnknownMessage: .* unknown kind '!'.* Upgrade Tailrace, or report it"):
                if one.driver is None:
                    one.start()
                one.settle()
            one.stop(kill=True)
    one.spec["source"] = {}
    one.start()
    equal(one)
