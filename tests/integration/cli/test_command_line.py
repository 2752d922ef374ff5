"""The command line as its user meets it: real processes, a source that insists on TLS and a password."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from support.console import Console
from support.postgres import PostgresServer
from support.process import Program
from support.proof.process import ENVIRONMENT, Deployment, forked, status

PASSWORD = "pa ss'wörd"
HBA = ("host all postgres 127.0.0.1/32 trust", "hostssl all all 127.0.0.1/32 scram-sha-256")
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
REFUSED, AUTHENTICATION = 10, 11


def certificates(folder: Path) -> None:
    """A CA (ca.crt) and what it signed for 127.0.0.1 (server.crt, server.key)."""
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    ca = ("-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=Test CA")
    server = ("-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=db", "-CA", "ca.crt", "-CAkey", "ca.key")
    for arguments in (ca, (*server, "-addext", "subjectAltName=IP:127.0.0.1")):
        done = subprocess.run(
            ["openssl", "req", "-x509", *new, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Deployment]:
    """A Replicator of a server that lets the role `tailrace` in only over TLS and with its password."""
    certificates(tmp_path)
    server = PostgresServer(18, {"ssl": "on"}, hba=HBA)
    owner = server.data_dir.stat()
    for name in ("server.crt", "server.key"):
        inside = server.data_dir / name
        inside.write_bytes((tmp_path / name).read_bytes())
        inside.chmod(0o600)
        os.chown(inside, owner.st_uid, owner.st_gid)
    secret = tmp_path / "password"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    with server:
        server.execute(f"CREATE ROLE tailrace LOGIN REPLICATION PASSWORD '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
        server.execute("GRANT CREATE ON DATABASE postgres TO tailrace; CREATE SCHEMA AUTHORIZATION tailrace")
        server.execute("CREATE TABLE tailrace.numbers (id int PRIMARY KEY, v int, region text)")
        server.execute("ALTER TABLE tailrace.numbers OWNER TO tailrace")
        server.execute("INSERT INTO tailrace.numbers SELECT g, g, 'eu' FROM generate_series(1, 3000) g")
        source: dict[str, object] = {
            "type": "postgresql",
            "host": server.host,
            "port": server.port,
            "database": "postgres",
            "username": "tailrace",
            "passwordFile": str(secret),
            "tls": {"mode": "verify-full", "caFile": str(tmp_path / "ca.crt")},
        }
        deployment = Deployment(tmp_path / "home", source, spec={"tables": {"include": ["tailrace.*"]}})
        deployment.write_manifest()
        yield deployment
        deployment.close()


def ask(deployment: Deployment, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return deployment.command(verb, "-f", str(deployment.manifest), "--run-dir", str(deployment.state), *arguments)


def told(deployment: Deployment, verb: str, *arguments: str) -> str:
    done = ask(deployment, verb, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_doctor_names_the_setting_the_value_and_the_fix_and_touches_nothing(tmp_path: Path) -> None:
    with PostgresServer(14, {"wal_level": "replica"}) as server:
        server.execute("CREATE TABLE t (id int PRIMARY KEY, where_is point)")
        place = {"host": server.host, "port": server.port, "database": "postgres", "username": "postgres"}
        deployment = Deployment(
            tmp_path / "home", {"type": "postgresql", **place}, spec={"tables": {"include": ["public.*"]}}
        )
        deployment.write_manifest()
        done = ask(deployment, "doctor")
        assert done.returncode == REFUSED
        assert "wal_level" in done.stdout and "ALTER SYSTEM SET wal_level = 'logical'" in done.stdout
        assert done.stdout.endswith("not ready\n")
        document = json.loads(ask(deployment, "doctor", "--json").stdout)
        assert not document["ready"]
        failed = [line for line in document["lines"] if line["level"] == "fail"]
        assert any("wal_level" in line["subject"] + line["message"] and line["fix"] for line in failed)
        (table,) = document["tables"]
        assert [(c["column"], c["support"]) for c in table.pop("columns")] == [("id", "YES"), ("where_is", "PARTIAL")]
        assert table == {"table": "public.t", "copied": True, "key": ["id"], "rows": 0, "bytes": 0}
        assert server.execute("SELECT count(*) FROM pg_publication")[0][0] == 0
        server.restart(settings={"wal_level": "logical"})
        assert told(deployment, "doctor").endswith("ready\n")
        old = tmp_path / "old.yaml"
        old.write_text(deployment.manifest.read_text().replace("public.*", "public.none"))
        changes = json.loads(told(deployment, "diff", "--old", str(old), "--json"))
        assert changes["needed"] == "reload" and [f["field"] for f in changes["fields"]] == ["tables.include"]
        assert [(t["table"], t["effect"]) for t in changes["tables"]] == [("public.t", "captured")]
        assert server.execute("SELECT count(*) FROM pg_replication_slots")[0][0] == 0


def test_a_wrong_password_is_named_by_its_exit_code_and_a_wrong_ca_is_refused(
    secured: Deployment, tmp_path: Path
) -> None:
    assert told(secured, "doctor").endswith("ready\n")
    (tmp_path / "password").write_text("another")
    done = ask(secured, "doctor")
    assert done.returncode == AUTHENTICATION, done.stdout + done.stderr
    assert "another" not in done.stdout + done.stderr
    (tmp_path / "password").write_text(PASSWORD)
    other = tmp_path / "other"
    other.mkdir()
    certificates(other)
    secured.source["tls"] = {"mode": "verify-full", "caFile": str(other / "ca.crt")}
    secured.write_manifest()
    done = ask(secured, "doctor")
    assert done.returncode != 0 and "certificate" in done.stdout, done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_a_snapshot_is_asked_for_paused_resumed_and_stopped_from_the_command_line(secured: Deployment) -> None:
    assert "no driver runs" in ask(secured, "status").stderr
    run = secured.start("--json")
    run.until(lambda: snapshots(secured).count("Completed") == 1, 200, "the initial snapshot")
    assert_no_password(run)
    many = ("--tables", "tailrace.*", "--chunk-rows", "5", "--parallelism", "1")
    assert "accepted, reads tailrace." in told(secured, "snapshot", *many, "--id", "slow")
    run.until(lambda: "slow" in told(secured, "status"), 60, "the snapshot to be shown")
    told(secured, "pause", "slow")
    run.until(lambda: snapshots(secured)[-1] == "Paused", 60, "the snapshot to pause")
    told(secured, "resume")
    run.until(lambda: snapshots(secured)[-1] == "Running", 60, "the snapshot to go on")
    told(secured, "stop", "slow")
    run.until(lambda: snapshots(secured)[-1] == "Stopped", 60, "the snapshot to stop")
    told(secured, "snapshot", "--tables", "tailrace.numbers", "--where", "id < 10", "--id", "few")
    run.until(lambda: snapshots(secured)[-1] == "Completed", 100, "the second snapshot")
    document = json.loads(told(secured, "status", "--json"))
    assert document["snapshots"][-1]["rowsDone"] == 9
    looked_at(secured, run)
    refused = ask(secured, "snapshot", "--tables", "tailrace.nothing")
    assert refused.returncode == 2 and "tailrace.numbers" in refused.stderr, refused.stderr
    assert run.stop() == 0, run.tail()
    lines = [json.loads(line) for line in run.output.read_text().splitlines() if line.startswith("{")]
    assert lines and all(line["name"] == "proof" for line in lines if "capture" in line)


@pytest.mark.timeout(300)
def test_on_a_terminal_the_view_is_drawn_in_place_and_ctrl_c_ends_in_order(secured: Deployment) -> None:
    secured.spec["snapshot"] = {"chunkRows": 300}  # else it is over before it is drawn
    secured.write_manifest()
    tailrace = [sys.executable, "-m", "tailrace.cli.main", "run", "-f", str(secured.manifest)]
    # `script` gives it a terminal; what a background job ignores is inherited.
    inside = shlex.join(["env", "--default-signal=INT", *tailrace, "--run-dir", str(secured.state)])
    shown = secured.folder / "terminal"
    shown.touch()
    process = subprocess.Popen(
        ["script", "-qefc", f"stty rows 24 cols 80; exec {inside}", str(shown)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={name: value for name, value in ENVIRONMENT.items() if name not in ("COLUMNS", "LINES")},
    )
    assert process.stdin is not None
    run = Program(process, shown)
    try:
        run.until(lambda: "REPLICATING" in run.tail(), 200, "the table to be shown as replicating")
        process.stdin.write(b"\x03")
        process.stdin.flush()
        assert run.wait(60) == 0, run.tail()
    finally:
        process.stdin.close()
        run.kill()
    text = shown.read_text()
    assert HIDE in text and text.rindex(SHOW) > text.rindex(HIDE), "the cursor is given back"
    assert "SIGINT: shutting down" in text
    words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", text)
    assert re.search(r"tailrace\.numbers +REPLICATING", words), words[-3000:]
    assert "snapshot tailrace.numbers" in words and "Traceback" not in words


def looked_at(deployment: Deployment, run: Program) -> None:
    """The console is another process, which shows the driver and has it suspend apply and make a cut."""
    arguments = ("-f", str(deployment.manifest), "--run-dir", str(deployment.state), "--listen", "127.0.0.1:0")
    output = deployment.folder / "console.log"
    output.touch()
    shown = forked(["console", *arguments, "--allow-actions"], dict(ENVIRONMENT), output)
    try:
        shown.until(lambda: "#token=" in shown.tail(), 60, "the console's address")
        address = re.search(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)", shown.tail())
        assert address is not None
        console, proof = Console(int(address[1]), address[2]), "/api/v1/replicators/proof"

        def act(verb: str, **more: str) -> str:
            code, _, answer = console.send("POST", f"{proof}/actions", {"verb": verb, **more})
            assert code == 200, answer
            return str(json.loads(answer)["message"])

        assert [(r["name"], r["state"]) for r in console.get("/api/v1/fleet")["replicators"]] == [("proof", "Running")]
        run.until(lambda: len(console.get(f"{proof}/history")["at"]) > 1, 60, "the driver's numbers of the last hour")
        table = console.get(f"{proof}/tables/tailrace.numbers")
        assert [c["sourceType"] for c in table["columns"]] == ["integer", "integer", "text"]
        assert table["snapshots"][-1]["rowsDone"] == 9 and table["snapshots"][-1]["more"] == 0
        assert act("suspend") == "in effect: apply.suspend"
        run.until(lambda: console.get(proof)["status"]["state"] == "Suspended", 60, "apply to be suspended")
        assert act("unsuspend") == "in effect: apply.suspend"
        assert act("cut", cut="noon").startswith("noon: record ")
        assert [cut["name"] for cut in console.get(f"{proof}/cuts")["cuts"]] == ["noon"]
        assert act("dropCut", cut="noon") == "noon: dropped"
        assert shown.stop() == 0, shown.tail()
    finally:
        if shown.poll() is None:
            shown.kill()


def snapshots(deployment: Deployment) -> list[str]:
    """States of the running process's snapshots, oldest first."""
    document = status(deployment)
    return [""] if document is None else [shot["state"] for shot in document["snapshots"]] or [""]


def assert_no_password(run: Program) -> None:
    """Neither in the command lines nor in the environments of any process, nor in what they print."""
    looked = 0
    for process in run.family():
        with suppress(psutil.NoSuchProcess):  # Python workers come and go
            assert PASSWORD not in " ".join(process.cmdline())
            assert PASSWORD not in "".join(process.environ().values())
            looked += 1
    assert looked >= 3, "driver, JVM and capture"
    assert PASSWORD not in run.output.read_text()
