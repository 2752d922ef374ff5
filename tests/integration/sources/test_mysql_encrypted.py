"""A server whose binary log is encrypted: read as any other, and followed to."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import servers
from support import mysql_shop
from support.mysql import MYSQL, MysqlServer
from support.mysql_replicas import caught_up, copy_of, follow, level, promote

Encrypted = Callable[[str], MysqlServer]


@pytest.fixture
def encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Encrypted:
    """Each has its program and its key in a folder of its own, for only there the server looks for its keyring."""

    def made(name: str) -> MysqlServer:
        folder, found = tmp_path / name, servers.mysql(MYSQL)
        subprocess.run(["cp", "-a", found, folder], check=True)
        (folder / "usr/sbin/mysqld.my").write_text('{"components": "file://component_keyring_file"}')
        keyring = json.dumps({"path": str(tmp_path / f"{name}.key"), "read_only": False})
        (folder / "usr/lib/mysql/plugin/component_keyring_file.cnf").write_text(keyring)
        with monkeypatch.context() as patched:
            patched.setattr(servers, "mysql", lambda _: folder)
            return MysqlServer(MYSQL, binlog_encryption="ON")

    return made


def test_an_encrypted_log_is_read_and_followed_to_a_promoted_replica(encrypted: Encrypted, tmp_path: Path) -> None:
    """The new server's own transactions are in the same file as those that were read."""
    with encrypted("primary") as primary, encrypted("replica") as replica:
        assert {row[2] for row in primary.execute("SHOW BINARY LOGS")} == {"Yes"}
        mysql_shop.create(primary)
        primary.script("CREATE USER repl IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO repl")
        follow(replica, primary)
        copy = copy_of(primary, tmp_path)
        with copy.running():
            primary.execute("INSERT INTO shop.plain VALUES (1, 'one', 1)")
            level(primary, copy)
            before = copy.state.snapshots.keys()
        with copy.running():
            primary.execute("INSERT INTO shop.plain VALUES (2, 'two', 1)")
            level(primary, copy)
        caught_up(replica, primary)
        promote(replica)
        replica.execute("INSERT INTO shop.plain VALUES (3, 'three', 1)")
        moved = copy_of(replica, tmp_path)
        with moved.running():
            level(replica, moved)
            assert moved.state.snapshots.keys() == before
