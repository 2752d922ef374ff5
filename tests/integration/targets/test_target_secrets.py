"""A database target with its password and CA in mounted Secrets: rotated, and its server restarted in between."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cluster.pki import Authority
from support.database_copies import begin, settle
from support.postgres import PostgresServer
from tailrace import targets
from tailrace.contract.resources import TargetSpec
from tailrace.errors import TargetRefused
from tailrace.storage.secret_files import SECRETS_VARIABLE

HBA = ("host all postgres 127.0.0.1/32 trust", "hostssl all copier 127.0.0.1/32 scram-sha-256")
ROLE = "CREATE ROLE copier LOGIN PASSWORD 'first'; CREATE DATABASE copy OWNER copier"
ROWS = "SELECT * FROM shop.item ORDER BY id"


def secure(server: PostgresServer, authority: Path) -> None:
    """Give the server a certificate before it starts."""
    owner = server.data_dir.stat()
    for name in ("server.crt", "server.key"):
        shutil.copy(authority / name, server.data_dir / name)
        os.chown(server.data_dir / name, owner.st_uid, owner.st_gid)
        (server.data_dir / name).chmod(0o600)
    server.settings |= {"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}


def rotate(secrets: Path, password: str) -> None:
    """As the kubelet does it: a link to a new folder."""
    new = secrets / f"..{password}"
    new.mkdir()
    (new / "password").write_text(password)
    (secrets / "link").symlink_to(new)
    (secrets / "link").rename(secrets / "copy-db")


@pytest.mark.timeout(300)
def test_a_password_is_rotated_and_the_server_restarts(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "secrets"
    Authority(tmp_path / "own").server("server", "db", ["IP:127.0.0.1"])
    Authority(tmp_path / "stranger")
    (secrets / "copy-ca").mkdir(parents=True)
    shutil.copy(tmp_path / "own" / "ca.crt", secrets / "copy-ca" / "ca.crt")
    rotate(secrets, "first")
    monkeypatch.setenv(SECRETS_VARIABLE, str(secrets))
    given: dict[str, Any] = {
        "credentials": {"secretName": "copy-db"},
        "tls": {"mode": "verify-full", "caSecretName": "copy-ca"},
    }
    postgres.execute("CREATE SCHEMA shop; CREATE TABLE shop.item (id int PRIMARY KEY, v text)")
    postgres.execute("INSERT INTO shop.item SELECT n, 'first' FROM generate_series(1, 100) n")
    server = PostgresServer(hba=HBA)
    secure(server, tmp_path / "own")
    with server:
        for statement in ROLE.split("; "):
            server.execute(statement)
        copy = begin(postgres.source(), server, tmp_path, "copier", **given)
        copy.start()
        settle(copy)
        for password in ("second", "third"):
            server.execute(f"ALTER ROLE copier PASSWORD '{password}'")
            server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'copier'")
            postgres.execute("UPDATE shop.item SET v = %s WHERE id %% 3 = 0", [password])
            if password == "second":  # the Secret comes later
                copy.until(lambda _: copy.driver.faults(), work=True)
            rotate(secrets, password)
            settle(copy)
            server.restart("immediate")
        assert postgres.execute(ROWS) == server.execute(ROWS, dbname="copy")
        copy.stop()
        shutil.copy(tmp_path / "stranger" / "ca.crt", secrets / "copy-ca" / "ca.crt")
        with pytest.raises(TargetRefused, match=r"target\.tls: its CA must be the one"):
            targets.open(TargetSpec.model_validate(copy.document["spec"]["target"])).examine()
