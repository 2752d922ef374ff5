"""The files that a source's connection needs, as the manifest names them or in mounted Secrets: where they are, and the
password in one."""

from pathlib import Path
from typing import NamedTuple

from tailrace.contract.resources import SourceSpec
from tailrace.errors import AuthenticationFailed, SourceRefused


class SecretFiles(NamedTuple):
    """Paths; None: not given."""

    password: str | None
    ca: str | None


def secret_files(source: SourceSpec, secrets: Path | None) -> SecretFiles:
    """`secrets`: folder in which Secret `name` is mounted as `name/<key>`; None outside Kubernetes. `SourceRefused`: a
    Secret is named there."""
    password = source.password_file
    if source.credentials is not None:
        password = source.credentials.file or _mounted(secrets, source.credentials.secret_name, "password")
    return SecretFiles(password, source.tls.ca_file or _mounted(secrets, source.tls.ca_secret_name, "ca.crt"))


def read_password(path: str) -> bytes:
    """Read at each connect, so that a rotated one is taken without a restart. `AuthenticationFailed`: there is none."""
    correct = "or correct source.passwordFile (or source.credentials)."
    try:
        password = Path(path).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise AuthenticationFailed(
            f"the password file {path} cannot be read: {error.strerror}", f"Mount the Secret, {correct}"
        ) from None
    if not password:
        raise AuthenticationFailed(f"the password file {path} is empty", f"Write the password into it, {correct}")
    return password


def _mounted(secrets: Path | None, secret: str | None, key: str) -> str | None:
    if secret is None:
        return None
    if secrets is None:
        raise SourceRefused(
            f"Secret {secret!r} cannot be read outside Kubernetes",
            "Use passwordFile, credentials.file and tls.caFile instead.",
        )
    return str(secrets / secret / key)
