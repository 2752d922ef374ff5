"""Runs Helm in tests."""

import os
import subprocess
from pathlib import Path
from typing import Any

from cluster import places


def _run(arguments: tuple[str, ...], kubeconfig: Path | None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig or "/dev/null")}
    command = [str(places.helm()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)


def helm(*arguments: str, kubeconfig: Path | None = None) -> str:
    """What Helm prints. Without `kubeconfig` it reaches no cluster."""
    done = _run(arguments, kubeconfig)
    if done.returncode:
        raise AssertionError(f"helm {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def refused(*arguments: str, kubeconfig: Path | None = None) -> str:
    """What Helm says when it refuses."""
    done = _run(arguments, kubeconfig)
    if not done.returncode:
        raise AssertionError(f"helm {' '.join(arguments)} did not refuse")
    return done.stderr


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] == kind]


def only(documents: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = of_kind(documents, kind)
    return found
