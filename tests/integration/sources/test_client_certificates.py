"""Servers that know their client by its certificate: PostgreSQL with `clientcert=verify-full` and with `cert`, MySQL
and MariaDB with users that REQUIRE a certificate."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.pki import Authority
from mysql_packages import RELEASES
from support.mysql import MysqlServer
from support.postgres import PostgresServer
from support.versions import turns
from tailrace.databases.mysql.connect import connect as to_mysql
from tailrace.databases.mysql.connect import execute
from tailrace.databases.postgresql.connect import PgConfig
from tailrace.databases.postgresql.connect import connect as to_postgresql
from tailrace.errors import AuthenticationFailed, Retry
from tailrace.sources.mysql.source_config import SourceConfig

SECURE = [name for name in RELEASES if name != "mysql-8.0"]
"""The library for TLS in that one does not start."""
HBA = (
    "local all all trust",
    "hostssl all shopper 127.0.0.1/32 scram-sha-256 clientcert=verify-full",
    "hostssl replication shopper 127.0.0.1/32 scram-sha-256 clientcert=verify-full",
    "hostssl all keyed 127.0.0.1/32 cert",
    "host all all 127.0.0.1/32 trust",
)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`own` has signed the server's certificate and those of users; `stranger` one of a user that it does not know."""
    folder = tmp_path_factory.mktemp("certificates")
    own, stranger = Authority(folder / "own"), Authority(folder / "stranger")
    own.server("server", "db", ["IP:127.0.0.1"])
    for user in ("shopper", "keyed", "other"):
        own.client(user, user)
    stranger.client("shopper", "shopper")
    (folder / "password").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def postgres_server(pki: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(hba=HBA)
    for name in ("ca.crt", "server.crt", "server.key"):
        shutil.copy(pki / "own" / name, server.data_dir / name)
        owner = server.data_dir.stat()
        os.chown(server.data_dir / name, owner.st_uid, owner.st_gid)
        (server.data_dir / name).chmod(0o600)
    files = {"ssl_ca_file": "ca.crt", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
    server.settings |= {"ssl": "on", **files}
    with server:
        with closing(server.connect()) as admin:
            admin.execute("CREATE ROLE shopper LOGIN REPLICATION PASSWORD 'secret'")
            admin.execute("CREATE ROLE keyed LOGIN")
        yield server


def postgresql(server: PostgresServer, pki: Path, user: str, authority: str, name: str | None) -> PgConfig:
    """`name`: of the certificate; None: none."""
    plain = PgConfig(
        server.host, server.port, "postgres", user, tls_mode="verify-full", ca_file=str(pki / "own" / "ca.crt")
    )
    if user == "shopper":
        plain = replace(plain, password_file=str(pki / "password"))
    if name is None:
        return plain
    certificate, key = files(pki / authority, name)
    return replace(plain, cert_file=certificate, key_file=key)


def files(folder: Path, name: str) -> tuple[str, str]:
    """Certificate and key."""
    return str(folder / f"{name}.crt"), str(folder / f"{name}.key")


@pytest.mark.parametrize("replication", [False, True])
def test_postgresql_takes_the_certificate_beside_the_password(
    postgres_server: PostgresServer, pki: Path, replication: bool
) -> None:
    with closing(
        to_postgresql(postgresql(postgres_server, pki, "shopper", "own", "shopper"), replication=replication)
    ) as connection:
        assert connection.pgconn.ssl_in_use


def test_postgresql_takes_the_certificate_in_place_of_a_password(postgres_server: PostgresServer, pki: Path) -> None:
    with closing(to_postgresql(postgresql(postgres_server, pki, "keyed", "own", "keyed"))) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("keyed",)


@pytest.mark.parametrize(
    ("user", "authority", "name"),
    [
        ("shopper", "own", None),
        ("shopper", "own", "other"),
        ("keyed", "own", "other"),
        ("shopper", "stranger", "shopper"),
    ],
)
def test_postgresql_takes_no_other(
    postgres_server: PostgresServer, pki: Path, user: str, authority: str, name: str | None
) -> None:
    with pytest.raises(AuthenticationFailed, match=r"certificate|authentication failed|unknown ca") as caught:
        to_postgresql(postgresql(postgres_server, pki, user, authority, name))
    assert "certificate" in caught.value.fix, caught.value


def test_a_key_that_others_may_read_is_named_with_the_mode_that_it_needs(
    postgres_server: PostgresServer, pki: Path, tmp_path: Path
) -> None:
    config = postgresql(postgres_server, pki, "shopper", "own", "shopper")
    open_key = tmp_path / "open.key"
    shutil.copy(str(config.key_file), open_key)
    open_key.chmod(0o644)
    with pytest.raises(AuthenticationFailed, match=r"open\.key.* has group or world access.*u=rw \(0600\)"):
        to_postgresql(replace(config, key_file=str(open_key)))


def test_a_key_as_a_secrets_volume_has_it_is_taken(postgres_server: PostgresServer, pki: Path, tmp_path: Path) -> None:
    """Owned by root, readable for the pod's group: 0440."""
    config = postgresql(postgres_server, pki, "shopper", "own", "shopper")
    mounted = tmp_path / "tls.key"
    shutil.copy(str(config.key_file), mounted)
    mounted.chmod(0o440)
    to_postgresql(replace(config, key_file=str(mounted))).close()


def test_a_rotated_pair_is_taken_at_the_next_connect(
    postgres_server: PostgresServer, pki: Path, tmp_path: Path
) -> None:
    certificate, key = files(tmp_path, "tls")
    config = replace(postgresql(postgres_server, pki, "shopper", "own", "shopper"), cert_file=certificate, key_file=key)
    for authority, taken in (("stranger", False), ("own", True)):
        for suffix in ("crt", "key"):
            shutil.copy(pki / authority / f"shopper.{suffix}", tmp_path / f"tls.{suffix}")
        if taken:
            to_postgresql(config).close()
        else:
            with pytest.raises(AuthenticationFailed):
                to_postgresql(config)


# ---- MySQL and MariaDB ----


@pytest.fixture(scope="module", params=turns(*SECURE))
def mysql_server(request: pytest.FixtureRequest, pki: Path) -> Iterator[MysqlServer]:
    own = pki / "own"
    names = {"ssl_ca": "ca.crt", "ssl_cert": "server.crt", "ssl_key": "server.key"}
    with MysqlServer(request.param, **{variable: str(own / name) for variable, name in names.items()}) as running:
        running.script(
            "CREATE USER shopper@'%' IDENTIFIED BY 'secret' REQUIRE X509",
            "CREATE USER keyed@'%' IDENTIFIED BY 'secret' REQUIRE SUBJECT '/CN=keyed'",
        )
        yield running


def mysql(server: MysqlServer, pki: Path, user: str, authority: str, name: str | None) -> SourceConfig:
    plain = SourceConfig(
        "127.0.0.1", server.port, None, user, "test",
        password_file=str(pki / "password"), tls_mode="verify-full", ca_file=str(pki / "own" / "ca.crt"),
    )  # fmt: skip
    if name is None:
        return plain
    certificate, key = files(pki / authority, name)
    return replace(plain, cert_file=certificate, key_file=key)


@pytest.mark.parametrize("user", ["shopper", "keyed"])
def test_mysql_takes_the_certificate(mysql_server: MysqlServer, pki: Path, user: str) -> None:
    with closing(to_mysql(mysql(mysql_server, pki, user, "own", user))) as connection:
        assert str(execute(connection, "SELECT CURRENT_USER()")[0][0]).startswith(user)


@pytest.mark.parametrize(("user", "name"), [("shopper", None), ("keyed", None), ("keyed", "other")])
def test_mysql_takes_no_other(mysql_server: MysqlServer, pki: Path, user: str, name: str | None) -> None:
    with pytest.raises(AuthenticationFailed, match="Access denied") as caught:
        to_mysql(mysql(mysql_server, pki, user, "own", name))
    assert "source.tls" in caught.value.fix


def test_mysql_takes_none_of_another_authority(mysql_server: MysqlServer, pki: Path) -> None:
    """MySQL says why before it hangs up, MariaDB 11 only hangs up."""
    with pytest.raises((AuthenticationFailed, Retry), match=r"ALERT_UNKNOWN_CA|EOF") as caught:
        to_mysql(mysql(mysql_server, pki, "shopper", "stranger", "shopper"))
    assert isinstance(caught.value, AuthenticationFailed) == ("ALERT" in str(caught.value))
