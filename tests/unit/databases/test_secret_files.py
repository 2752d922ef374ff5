"""The file with the source's password: what is wrong with it is said of the file, by each source, before a server is
asked."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.databases.mysql.connect import MyConfig
from tailrace.databases.mysql.connect import connect as mysql
from tailrace.databases.postgresql.connect import PgConfig
from tailrace.databases.postgresql.connect import connect as postgresql
from tailrace.errors import AuthenticationFailed


def to_postgresql(password: str) -> object:
    return postgresql(PgConfig("127.0.0.1", 1, "d", "u", password_file=password))


def to_mysql(password: str) -> object:
    return mysql(MyConfig("127.0.0.1", 1, None, "u", "p", password_file=password))


@pytest.mark.parametrize("connect", [to_postgresql, to_mysql])
@pytest.mark.parametrize(
    ("content", "said"), [(b"", "is empty"), (b"\r\n\n", "is empty"), (None, "cannot be read: No such file")]
)
def test_a_password_file_without_a_password_is_named(
    tmp_path: Path, connect: Callable[[str], object], content: bytes | None, said: str
) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AuthenticationFailed, match=f"the password file {path} {said}") as caught:
        connect(str(path))
    assert "source.passwordFile" in caught.value.fix and "credentials" in caught.value.fix


def test_in_a_pod_the_secret_and_its_key_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_SECRETS", str(tmp_path))
    with pytest.raises(AuthenticationFailed, match="key 'password' of Secret 'shop-db' cannot be read: No such file"):
        to_postgresql(str(tmp_path / "shop-db" / "password"))
