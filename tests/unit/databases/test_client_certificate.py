"""The client's certificate and key: what is wrong with them is said of the file, by each source, before a server is
asked."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.pki import Authority
from tailrace.contract.resources import SourceSpec
from tailrace.databases.mysql.connect import MyConfig
from tailrace.databases.mysql.connect import connect as mysql
from tailrace.databases.postgresql.connect import PgConfig
from tailrace.databases.postgresql.connect import connect as postgresql
from tailrace.databases.secret_files import secret_files
from tailrace.errors import AuthenticationFailed, Retry, SourceRefused


def to_postgresql(certificate: str, key: str) -> object:
    return postgresql(PgConfig("127.0.0.1", 1, "d", "u", tls_mode="require", cert_file=certificate, key_file=key))


def to_mysql(certificate: str, key: str) -> object:
    return mysql(MyConfig("127.0.0.1", 1, None, "u", "p", tls_mode="require", cert_file=certificate, key_file=key))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    authority = Authority(folder)
    authority.client("one", "one")
    authority.client("two", "two")
    (folder / "none.key").write_text("no key\n")
    locked = ("ec", "-in", "one.key", "-aes256", "-passout", "pass:x", "-out", "locked.key")
    subprocess.run(["openssl", *locked], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("connect", [to_postgresql, to_mysql])
@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        ("gone.crt", "one.key", "the certificate file .*gone.crt cannot be read: No such file"),
        ("one.crt", "gone.key", "the key file .*gone.key cannot be read: No such file"),
        ("one.crt", "two.key", "the key file .*two.key is not the key of the certificate file .*one.crt"),
        ("one.crt", "locked.key", "the key file .*locked.key is encrypted"),
        ("one.crt", "none.key", "one.crt and the key file .*none.key cannot be loaded"),
        ("none.key", "one.key", "none.key and the key file .*one.key cannot be loaded"),
    ],
)
def test_what_cannot_be_used_is_named(
    made: Path, connect: Callable[[str, str], object], certificate: str, key: str, said: str
) -> None:
    with pytest.raises(AuthenticationFailed, match=said) as caught:
        connect(str(made / certificate), str(made / key))
    assert "source.tls" in caught.value.fix


@pytest.mark.parametrize("connect", [to_postgresql, to_mysql])
def test_a_pair_that_fits_is_taken(made: Path, connect: Callable[[str, str], object]) -> None:
    with pytest.raises(Retry):  # nobody listens
        connect(str(made / "one.crt"), str(made / "one.key"))


def test_in_a_pod_the_secret_and_its_key_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_SECRETS", str(tmp_path))
    source = SourceSpec.model_validate(
        {
            "type": "postgresql",
            "host": "db",
            "database": "d",
            "username": "u",
            "tls": {"mode": "require", "clientSecretName": "shop-client"},
        }
    )
    files = secret_files(source, tmp_path)
    with pytest.raises(AuthenticationFailed, match=r"key 'tls\.crt' of Secret 'shop-client' cannot be read"):
        to_postgresql(str(files.certificate), str(files.key))
    with pytest.raises(SourceRefused, match="Secret 'shop-client' of the source cannot be read outside Kubernetes"):
        secret_files(source, None)
