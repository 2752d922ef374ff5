"""The log over TLS, from servers that take no other connection: certificate and host name are checked."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.pki import Authority
from mysql_packages import RELEASES
from support import mysql_log
from support.mysql import MysqlServer
from support.mysql_log import LogRun
from support.versions import turns
from tailrace.errors import TailraceError

SECURE = [name for name in RELEASES if name != "mysql-8.0"]
"""The library for TLS in that one does not start."""
Connect = Callable[[str, str | None], LogRun]


@pytest.fixture(scope="module", params=turns(*SECURE))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlServer]:
    folder = tmp_path_factory.mktemp("certificates")
    Authority(folder / "own").server("server", "db", ["IP:127.0.0.1"])
    Authority(folder / "stranger")
    names = {"ssl_ca": "ca.crt", "ssl_cert": "server.crt", "ssl_key": "server.key"}
    variables = {variable: str(folder / "own" / name) for variable, name in names.items()}
    with MysqlServer(request.param, **variables, require_secure_transport="ON") as running:
        running.script("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY, v text)")
        yield running


@pytest.fixture
def open_log(server: MysqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """The log with a mode of `source.tls` and the certificate of one of the authorities."""
    own = Path(str(server.variables["ssl_ca"]))
    plain = mysql_log.config_of

    def opened(mode: str, authority: str | None) -> LogRun:
        ca = None if authority is None else str(own.parents[1] / authority / "ca.crt")
        monkeypatch.setattr(mysql_log, "config_of", lambda *server: replace(plain(*server), tls_mode=mode, ca_file=ca))
        return LogRun(server, tmp_path)

    return opened


def test_the_log_comes_whole_through_tls(server: MysqlServer, open_log: Connect) -> None:
    with open_log("verify-full", "own") as run:
        server.execute("INSERT INTO d.t VALUES " + ", ".join(f"({i}, REPEAT('x', {i}))" for i in range(2000)))
        server.script(*(f"UPDATE d.t SET v = 'y' WHERE id = {i}" for i in range(500)))
        run.catch_up()
        lengths = [len(row["v"]) for row in run.rows("d.t")]
    assert lengths == [1] * 500 + list(range(500, 2000))


@pytest.mark.parametrize(("mode", "authority"), [("disable", None), ("verify-ca", "stranger"), ("verify-full", None)])
def test_a_connection_that_is_not_secure_is_not_made(open_log: Connect, mode: str, authority: str | None) -> None:
    with pytest.raises(TailraceError, match=r"(?i)secure|certificate|Access denied"):
        open_log(mode, authority)
