"""The set-up help for a source that no manifest names yet: its assessment, and the manifest to commit.

A password is in this process's memory for as long as the source is asked, and in no file.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from pydantic import SecretStr, ValidationError

from tailrace.cli.console.assessed import assess
from tailrace.contract.base import API_VERSION
from tailrace.contract.console import SetupBody, SetupReport
from tailrace.contract.manifest import invalid
from tailrace.contract.resources import Replicator
from tailrace.errors import InvalidManifest

PASSWORD_FILE = "password.txt"
"""The name in the manifest to commit."""


def tried(body: SetupBody) -> SetupReport:
    """Connects to source and target, and changes nothing. Raises `InvalidManifest`."""
    with in_memory(body.password) as path:
        report = assess(_replicator(_document(body, path)))
    document = _document(body, None if body.password is None else PASSWORD_FILE)
    del document["spec"]["tables"]  # the page adds those that are chosen
    return SetupReport(assessment=report, manifest=yaml.safe_dump(document, sort_keys=False))


@contextmanager
def in_memory(password: SecretStr | None) -> Iterator[str | None]:
    """A path under which this process, and no other user's, can read it; no disk holds it."""
    if password is None:
        yield None
        return
    if not hasattr(os, "memfd_create"):
        raise InvalidManifest("a password without a file needs Linux", "Write a manifest with passwordFile.")
    number = os.memfd_create("password")
    try:
        os.write(number, password.get_secret_value().encode())
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def _document(body: SetupBody, password_file: str | None) -> dict[str, Any]:
    source = {
        "type": body.type,
        "host": body.host,
        "port": body.port,
        "database": body.database or None,
        "username": body.username,
        "passwordFile": password_file,
        "tls": {"mode": body.tls},
    }
    spec = {
        "source": {name: value for name, value in source.items() if value is not None},
        "target": {"type": body.target, "location": body.target_location},
        "storage": {"location": body.storage_location},
        "tables": {"include": list(body.tables)},
    }
    return {"apiVersion": API_VERSION, "kind": "Replicator", "metadata": {"name": body.name}, "spec": spec}


def _replicator(document: dict[str, Any]) -> Replicator:
    try:
        return Replicator.model_validate(document)
    except ValidationError as error:
        raise invalid(error, "Replicator", Replicator) from error
