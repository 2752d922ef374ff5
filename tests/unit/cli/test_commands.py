"""What the commands refuse before anything is started, and whom they speak with."""

import http.server
import json
import socket
import threading
from pathlib import Path

import pytest
from typing_extensions import override

from support.origins import origin as make_origin
from support.resources import replicator, request
from tailrace.capture.renewal import Renewal
from tailrace.changelog.records import EpochStarted
from tailrace.changelog.records.terms import Position
from tailrace.changelog.writer import JournalWriter
from tailrace.cli import main as cli
from tailrace.cli.client import DriverClient
from tailrace.contract.manifest import load
from tailrace.contract.resources import StorageLocation
from tailrace.contract.status import Fault, SnapshotStatus, Status, TableStatus
from tailrace.driver import launch
from tailrace.driver.asking.control import DriverControl
from tailrace.driver.asking.server import StatusServer
from tailrace.driver.process.run_dir import RunFolder
from tailrace.errors import InvalidManifest
from tailrace.storage.store import Storage


def written(folder: Path, name: str, *documents: object) -> str:
    path = folder / name
    path.write_text("\n---\n".join(json.dumps(document) for document in documents))
    return str(path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_a_request_for_a_replicator_that_the_files_do_not_hold_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "m.yaml", replicator(), request("again", replicator="shopp"))
    text = refused(capsys, "run", "-f", path, "--run-dir", str(tmp_path / "run"))
    assert "'again'" in text and "'shopp'" in text and "Fix:" in text


def test_a_rewind_in_the_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every start of a process would go back."""
    path = written(tmp_path, "m.yaml", replicator(), request("back", mode="Rewind", rewind={"toCut": "noon"}))
    text = refused(capsys, "run", "-f", path, "--run-dir", str(tmp_path / "run"))
    assert "'back': mode Rewind is for Kubernetes" in text and "tailrace rewind" in text


def test_two_files_with_the_same_resource_are_refused_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [written(tmp_path, file, replicator(), request()) for file in ("a.yaml", "b.yaml")]
    text = refused(capsys, "run", "-f", paths[0], "-f", paths[1], "--run-dir", str(tmp_path / "run"))
    assert "two Replicators are called 'shop'" in text


@pytest.mark.parametrize("listen", ["8080x", "127.0.0.1:70000", "[::1]:8080", "localhost"])
def test_a_wrong_address_to_listen_on_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], listen: str) -> None:
    path = written(tmp_path, "m.yaml", replicator())
    assert listen in refused(capsys, "run", "-f", path, "--listen", listen, "--run-dir", str(tmp_path / "run"))


def test_what_narrows_a_snapshot_is_not_dropped_silently(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "m.yaml", replicator(), request())
    text = refused(capsys, "snapshot", "-f", path, "--where", "id < 5", "--chunk-rows", "9")
    assert "--where, --chunk-rows: no effect without --tables" in text


def test_a_wrong_snapshot_of_the_command_line_is_named_without_a_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, "m.yaml", replicator())
    text = refused(capsys, "snapshot", "-f", path, "--tables", "public.a", "--where", "id < 5", "--keys", "1")
    assert text.startswith("tailrace: InvalidManifest: command line: ") and "document" not in text
    assert ". Fix: " in text and ".. Fix" not in text


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--tables", "public.a", "--chunk-rows", "0"), "--chunk-rows is 0: input should be greater"),
        (("--tables", "orders"), "--tables is 'orders': write schema.table"),
        (("--tables", "public.a", "--id", "a b"), "--id is 'a b': use lower-case letters"),
    ],
)
def test_a_wrong_flag_is_named_as_it_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    text = refused(capsys, "snapshot", "-f", written(tmp_path, "m.yaml", replicator()), *flags)
    assert said in text and text.endswith("Fix: See `tailrace snapshot --help`.\n")


def test_a_pattern_without_a_dot_is_one_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "m.yaml", replicator(tables={"include": ["orders"]}))
    text = refused(capsys, "run", "-f", path, "--run-dir", str(tmp_path / "run"))
    assert "spec.tables.include.0 is 'orders'" in text and "at least 1 item" not in text


def test_a_run_to_the_end_of_a_suspended_replicator_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 would say that everything is applied."""
    for spec, field in (({"suspend": True}, "spec.suspend"), ({"apply": {"suspend": True}}, "spec.apply.suspend")):
        path = written(tmp_path, "m.yaml", replicator(**spec))
        text = refused(capsys, "run", "-f", path, "--once", "--run-dir", str(tmp_path / "run"))
        assert f"{field} is true" in text and "Set it to false" in text


def test_a_file_of_signals_is_refused_where_nobody_would_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, run = written(tmp_path, "m.yaml", replicator()), ("--run-dir", str(tmp_path / "run"))
    signals = str(tmp_path / "signals")
    assert "--once ends" in refused(capsys, "run", "-f", path, "--once", "--signals", signals, *run)
    for wrong in (str(tmp_path), str(tmp_path / "none" / "signals")):
        assert "is no file in an existing folder" in refused(capsys, "run", "-f", path, "--signals", wrong, *run)
    monkeypatch.setenv("TAILRACE_SECRETS", str(tmp_path))
    assert "Create a SnapshotRequest" in refused(capsys, "run", "-f", path, "--signals", signals, *run)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "resync needs --tables or --all. Fix: Add one of them."),
        (("--all", "--tables", "a.b"), "--all covers every table, --tables names some. Fix: Leave one of them out."),
        (("--all", "--id", "Not A Name"), "command line: "),
        (("--all", "--chunk-rows", "0"), "command line: "),
    ],
)
def test_a_resync_says_what_is_wrong_with_its_options_whether_or_not_a_process_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    change_log(tmp_path, "shop")
    path = written(tmp_path, "m.yaml", replicator(storage={"location": (tmp_path / "log").as_uri()}))
    assert text in refused(capsys, "resync", "-f", path, "--run-dir", str(tmp_path / "run"), *arguments)
    assert not noted(tmp_path)


def test_help_says_when_a_run_to_the_end_fails(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["run", "--help"]):
        with pytest.raises(SystemExit):
            cli.main(arguments)
        text = " ".join(capsys.readouterr().out.split())
        assert "1 if a table failed" in text and "then exit 0" not in text
    assert str(InvalidManifest("no such file", "Mount the Secret.")) == (
        "InvalidManifest: no such file. Fix: Mount the Secret."
    )
    assert str(InvalidManifest("no such file.")) == "InvalidManifest: no such file"


def settings(tmp_path: Path, **more: object) -> launch.DriverSettings:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir(exist_ok=True)
    manifest = load(Path(written(tmp_path, "m.yaml", replicator())))
    return launch.DriverSettings(manifest.replicator(), (), folder, **more)  # type: ignore[arg-type]  # fields by name


def test_a_taken_port_and_an_unusable_token_file_are_named_with_a_fix(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidManifest, match=f"127.0.0.1:{port}.*--listen"):
            launch.server(settings(tmp_path, port=port), DriverControl("shop"))
    empty = tmp_path / "token"
    for make in (lambda: None, lambda: empty.write_text("\n")):
        make()
        with pytest.raises(InvalidManifest, match=f"{empty}"):
            launch.server(settings(tmp_path, token_file=empty), DriverControl("shop"))


class Ended(DriverControl):
    @override
    def status(self) -> Status:
        shot = SnapshotStatus(id="done", reason="request", state="Completed")
        return Status(name="shop", state="Running", started_at=1, updated_at=2, snapshots=(shot,))


def test_a_snapshot_that_has_ended_cannot_be_paused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.take()
    server = StatusServer(Ended("shop"), "127.0.0.1", 0, folder.make_token())
    server.start()
    folder.announce(server.url, None)
    path = written(tmp_path, "m.yaml", replicator())
    try:
        ended = refused(capsys, "pause", "-f", path, "--run-dir", str(folder.path), "done")
        none = refused(capsys, "pause", "-f", path, "--run-dir", str(folder.path))
        unknown = refused(capsys, "stop", "-f", path, "--run-dir", str(folder.path), "other")
        assert cli.main(["stop", "-f", path, "--run-dir", str(folder.path), "done"]) == 0
        assert capsys.readouterr().out == "done: nothing to stop, it has ended: Completed\n"
    finally:
        server.close()
        folder.release()
    assert "done has ended: Completed" in ended
    assert "WrongSnapshot: no snapshot is under way" in none
    assert "there is no snapshot 'other'" in unknown


class Wide(DriverControl):
    @override
    def status(self) -> Status:
        table = TableStatus(name=f"public.{'x' * 90}", state="FAILING", fault=Fault(name="Retry", message="y " * 90))
        return Status(name="shop", state="Running", started_at=1, updated_at=2, tables=(table,))


def test_a_status_that_another_program_reads_is_not_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tailrace status | grep …` found 80 columns."""
    monkeypatch.delenv("COLUMNS", raising=False)
    folder = RunFolder(tmp_path / "run")
    folder.take()
    server = StatusServer(Wide("shop"), "127.0.0.1", 0, folder.make_token())
    server.start()
    folder.announce(server.url, None)
    try:
        assert cli.main(["status", "-f", written(tmp_path, "m.yaml", replicator()), "--run-dir", str(folder.path)]) == 0
    finally:
        server.close()
        folder.release()
    text = capsys.readouterr().out
    assert "x" * 90 in text and "snapshot rows" in text and ("y " * 89 + "y") in text


HEARD: list[str | None] = []


class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        HEARD.append(self.headers.get("Authorization"))
        self.send_error(502)

    do_PUT = do_GET

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_proxy_of_the_environment_hears_nothing_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_address[1]}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    folder = RunFolder(tmp_path)
    folder.take()
    server = StatusServer(Ended("shop"), "127.0.0.1", 0, folder.make_token())
    server.start()
    folder.announce(server.url, None)
    try:
        assert DriverClient.of(folder).status().name == "shop"
    finally:
        server.close()
        folder.release()
        proxy.shutdown()
        proxy.server_close()
    assert HEARD == []


def change_log(folder: Path, owner: str) -> JournalWriter:
    """One that this owner made."""
    origin = make_origin(owner=owner, name="tailrace_shop_1", system="7")  # fmt: skip
    return JournalWriter.create(
        Storage.open(StorageLocation(location=(folder / "log").as_uri())), origin, Position(5), "n"
    )


def resync_all(folder: Path, name: str = "shop", **metadata: str) -> int:
    """While no process runs."""
    document = replicator(name, storage={"location": (folder / "log").as_uri()})
    document["metadata"] |= metadata
    path = written(folder, "m.yaml", document)
    return cli.main(["resync", "-f", path, "--run-dir", str(folder / "run"), "--all"])


def noted(folder: Path) -> bool:
    return Renewal.read(Storage.open(StorageLocation(location=(folder / "log").as_uri()))) is not None


@pytest.mark.parametrize(
    ("owner", "metadata"),
    [
        ("shop", {"uid": "u1"}),
        ("team/shop@u1", {"namespace": "other"}),
        ("team/shop@u1", {"namespace": "team", "uid": "u2"}),
        ("team/cart@u1", {}),
        ("cart", {}),
    ],
)
def test_a_resync_of_everything_is_not_noted_in_the_change_log_of_another_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], owner: str, metadata: dict[str, str]
) -> None:
    change_log(tmp_path, owner)
    assert resync_all(tmp_path, **metadata) == 10
    text = capsys.readouterr().err
    assert f"SourceRefused: the change log at file://{tmp_path}/log belongs to Replicator '{owner}'" in text
    assert "Fix:" in text and not noted(tmp_path)


@pytest.mark.parametrize(
    ("owner", "metadata"),
    [
        ("shop", {}),
        # Outside Kubernetes the manifest of an object there does not hold its uid.
        ("team/shop@u1", {}),
        ("team/shop@u1", {"namespace": "team"}),
        ("team/shop@u1", {"namespace": "team", "uid": "u1"}),
    ],
)
def test_a_resync_of_everything_is_noted_in_its_own_change_log_and_says_what_becomes_of_the_slot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], owner: str, metadata: dict[str, str]
) -> None:
    change_log(tmp_path, owner)
    assert resync_all(tmp_path, **metadata) == 0
    text = capsys.readouterr().out
    assert "the next start re-creates replication slot tailrace_shop_1, publication tailrace_shop_1, even if" in text
    assert noted(tmp_path)


def test_a_resync_of_everything_is_noted_in_a_log_that_its_owner_released(tmp_path: Path) -> None:
    change_log(tmp_path, "cart")
    storage = Storage.open(StorageLocation(location=(tmp_path / "log").as_uri()))
    JournalWriter.claim(storage, "dropper", started=EpochStarted(owner="cart", released=True))
    assert resync_all(tmp_path) == 0 and noted(tmp_path)


def test_without_a_change_log_a_resync_of_everything_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert resync_all(tmp_path) == 2
    text = capsys.readouterr().err
    assert f"there is no change log at file://{tmp_path}/log" in text and "storage.location" in text
    assert not noted(tmp_path)
