"""The requirements on the machine itself: Python, Java and, for what is built from Go, a Go compiler, each new enough.

Called by `bootstrap.py` first of all, with whatever Python is there: both files must parse under Python 3.8.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

PYTHON = (3, 11)
JAVA = 17
GO = {"s3": ((1, 24), "the S3 test server"), "kubernetes": ((1, 26), "Kubernetes' programs"), "helm": ((1, 26), "Helm")}
"""Part of the setup -> the oldest Go that builds it, and what it is."""
SWITCHES = (1, 21)
"""The version from which a `go` fetches the newer one that a module asks for, unless GOTOOLCHAIN=local."""


def python_missing(version: tuple[int, ...] = tuple(sys.version_info[:2])) -> str | None:
    if version >= PYTHON:
        return None
    return f"Python {_text(PYTHON)} or newer (this is {_text(version)}): apt-get install python3.11 python3.11-venv"


def java_missing() -> str | None:
    found = java_version()
    if found >= JAVA:
        return None
    have = f"the java on the path is {found}" if found else "there is none on the path"
    return (
        f"Java {JAVA} or newer, for Spark and for fetching jars ({have}): apt-get install openjdk-{JAVA}-jre-headless"
    )


def java_version() -> int:
    """The major version of the `java` on the path; 0: there is none. (Java 8 calls itself 1.8.)"""
    found = re.search(r'version "(?:1\.)?(\d+)', _said("java", "-version"))
    return int(found.group(1)) if found else 0


def go_missing(part: str) -> str | None:
    """`part`: one of `GO`."""
    needed, what = GO[part]
    found = re.search(r"\bgo(\d+)\.(\d+)", _said("go", "version"))
    have = (int(found.group(1)), int(found.group(2))) if found else None
    fetches = have is not None and have >= SWITCHES and _said("go", "env", "GOTOOLCHAIN").strip() != "local"
    if have is not None and (have >= needed or fetches):
        return None
    found_text = "there is none on the path" if have is None else f"the go on the path is {_text(have)}"
    return f"Go {_text(needed)} or newer, for {what} ({found_text}): https://go.dev/dl"


def _said(*command: str) -> str:
    """The output of the program; empty: there is none, or it fails."""
    if not shutil.which(command[0]):
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=os.sep)
    return done.stderr + done.stdout if done.returncode == 0 else ""


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
