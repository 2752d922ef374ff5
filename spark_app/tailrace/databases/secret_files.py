"""The files that a connection to a database needs, as the manifest names them or in mounted Secrets: where they are,
and the password in one."""

from pathlib import Path
from typing import NamedTuple

from tailrace.contract.places import ServerSpec
from tailrace.errors import AuthenticationFailed, SourceRefused, TargetRefused
from tailrace.storage.secret_files import file_place


class SecretFiles(NamedTuple):
    """Paths; None: not given."""

    password: str | None
    ca: str | None
    certificate: str | None
    """The client's, with its key in `key`: both or none."""
    key: str | None


def secret_files(source: ServerSpec, secrets: Path | None, part: str = "source") -> SecretFiles:
    """`secrets`: folder in which Secret `name` is mounted as `name/<key>`; None outside Kubernetes. `SourceRefused` or
    `TargetRefused`: a Secret is named there."""
    refused = TargetRefused if part == "target" else SourceRefused

    def mounted(secret: str | None, key: str) -> str | None:
        if secret is not None and secrets is None:
            raise refused(
                f"Secret {secret!r} of the {part} cannot be read outside Kubernetes",
                "Use passwordFile, credentials.file, tls.caFile, tls.clientCertFile and tls.clientKeyFile instead.",
            )
        return None if secret is None or secrets is None else str(secrets / secret / key)

    password = source.password_file
    if source.credentials is not None:
        password = source.credentials.file or mounted(source.credentials.secret_name, "password")
    tls = source.tls
    return SecretFiles(
        password,
        tls.ca_file or mounted(tls.ca_secret_name, "ca.crt"),
        tls.client_cert_file or mounted(tls.client_secret_name, "tls.crt"),
        tls.client_key_file or mounted(tls.client_secret_name, "tls.key"),
    )


def read_password(path: str, part: str = "source") -> bytes:
    """Read at each connect, so that a rotated one is taken without a restart. `AuthenticationFailed`: there is none."""
    what, correct = file_place(path, "password file"), f"or correct {part}.passwordFile (or {part}.credentials)."
    try:
        password = Path(path).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise AuthenticationFailed(f"{what} cannot be read: {error.strerror}", f"Write it, {correct}") from None
    if not password:
        raise AuthenticationFailed(f"{what} is empty", f"Write the password into it, {correct}")
    return password
