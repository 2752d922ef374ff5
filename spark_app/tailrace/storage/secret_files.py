"""Reads the names and values of a manifest's `credentials`, for object stores and catalogs: a mounted Secret or a file.

In Kubernetes the operator mounts each Secret that a manifest names, as a folder with a file for each key. Outside, a
file has lines `name=value`.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.contract.resources import Credentials
from tailrace.errors import Stop

SECRETS_VARIABLE = "TAILRACE_SECRETS"
"""Environment variable: the folder with a folder for each Secret that a `secretName` names."""
DEFAULT_SECRETS = "/etc/tailrace/secrets"


def read(
    credentials: Credentials,
    names: Sequence[str],
    environment: Mapping[str, str],
    refused: type[Stop],
    field: str = "credentials",
) -> dict[str, str]:
    """Values of those of `names` that are there. Raises `refused`; `field` is the manifest's, for the message."""
    path, what = _place(credentials, environment, field)
    try:
        return _read_folder(path, names) if path.is_dir() else _read_lines(path, names)
    except FileNotFoundError as error:
        if credentials.secret_name is None:
            raise refused(f"{what} does not exist", "Correct the path.") from error
        raise refused(
            f"{what} is not mounted at {path}", f"In Kubernetes, create the Secret. Elsewhere, use {field}.file."
        ) from error
    except OSError as error:
        raise refused(f"{what} cannot be read ({error.strerror})", "Correct its permissions.") from error
    except ValueError:  # no UTF-8, whose text the error repeats; or a path with a null byte
        raise refused(f"{what} is not a text file", "Check path and content.") from None


def file_place(path: str, what: str) -> str:
    """The name of the file in a message: in a pod the path is unknown to the user, but not the Secret that is mounted
    there."""
    mounted = os.environ.get(SECRETS_VARIABLE)
    if mounted and Path(path).is_relative_to(mounted):
        secret, _, key = str(Path(path).relative_to(mounted)).partition("/")
        return f"key {key!r} of Secret {secret!r}"
    return f"the {what} {path}"


def _place(credentials: Credentials, environment: Mapping[str, str], field: str) -> tuple[Path, str]:
    """The folder of the values, and its name in messages."""
    if credentials.file is not None:
        return Path(credentials.file), f"{field}.file {credentials.file!r}"
    name = str(credentials.secret_name)
    return Path(environment.get(SECRETS_VARIABLE, DEFAULT_SECRETS)) / name, f"{field}.secretName {name!r}"


def _read_folder(path: Path, names: Sequence[str]) -> dict[str, str]:
    return {name: (path / name).read_text(encoding="utf-8").strip() for name in names if (path / name).is_file()}


def _read_lines(path: Path, names: Sequence[str]) -> dict[str, str]:
    pairs = (line.partition("=") for line in path.read_text(encoding="utf-8").splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip() in names}
