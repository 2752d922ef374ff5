"""The parts of libraries' exceptions: the classes down to the first cause, Java's among them, and the places in the
code that they passed. Names of classes and lines of code hold no values of rows; texts may, and are marked here.

What people read of them is decided by `privacy` alone. Neither py4j nor pyspark is imported: capture has no JVM, and an
exception of theirs is known by its attributes.
"""

import errno
import os
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST = 8
"""Causes that are named."""
JAVA_FRAMES = 6
"""Frames of each Java exception."""
PYTHON_WORKER = "PythonException"
"""Spark's class for an exception of a Python task, whose text is a Python traceback."""
_HARMLESS = re.compile(
    r"java\.net\.(Connect|UnknownHost|SocketTimeout|Socket|NoRouteToHost|Bind|HttpRetry|PortUnreachable)Exception"
    r"|java\.nio\.file\..*|java\.nio\.channels\..*|java\.util\.concurrent\.TimeoutException|javax\.net\.ssl\..*"
    r"|java\.io\.(FileNotFound|EOF)Exception|java\.lang\.(OutOfMemory|ClassNotFound|NoClassDefFound|NoSuchMethod).*"
    r"|java\.security\.cert\..*|sun\.security\..*|software\.amazon\.awssdk\..*|com\.amazonaws\..*"
    r"|org\.apache\.(http|hc)\..*|org\.apache\.hadoop\.(fs|net|security)\..*|org\.postgresql\..*"
    r"|org\.apache\.iceberg\.exceptions\.(NotAuthorized|Forbidden|Service\w+|NoSuchTable|NoSuchNamespace|NotFound)Exception"
)
"""Java classes whose texts are about hosts, files, rights and code. (PostgreSQL's Java client reaches catalogs.)"""
_WORKER_FRAME = re.compile(r'^\s*(File "[^"\n]+", line \d+, in [\w<>.]+)$', re.MULTILINE)
_WORKER_CLASS = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$", re.MULTILINE)
FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXT = re.compile("|".join(re.escape(os.strerror(number)) for number in FULL))


@dataclass(frozen=True)
class Cause:
    """One exception of a chain."""

    name: str
    text: str
    harmless: bool
    """True if its text is of a kind that never holds values of rows."""

    def named(self, text: str) -> str:
        return f"{self.name}: {text}" if text else self.name


def chain(error: BaseException) -> list[Cause]:
    """The exception and what led to it; a Java exception in place of the Python one that stands for it."""
    found: list[Cause] = []
    at: BaseException | None = error
    while at is not None and len(found) < LONGEST:
        java = _java(at)
        found += [_of_python(at)] if java is None else [cause for one in java for cause in _of_java(*one)]
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return found[:LONGEST]


def full(error: BaseException) -> bool:
    """True if a disk or a quota is full, as Python or Java (by its text alone) reports it."""
    return any(_FULL_TEXT.search(cause.text) for cause in chain(error))


def names(error: BaseException, path: str) -> bool:
    """True if the exception's text names the path."""
    return path in str(error)


def place(error: BaseException) -> str:
    """The last line of our own that the exception passed, as `apply/applier.py:120`; empty: it passed none."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "tailrace" in Path(f.filename).parts]
    if not ours:
        return ""
    parts = Path(ours[-1].filename).parts
    inside = parts[len(parts) - parts[::-1].index("tailrace") :]
    return f"{'/'.join(inside)}:{ours[-1].lineno}"


def frames(error: BaseException) -> Iterator[str]:
    """The places in the code that a Java exception, or one of a Python task, came from."""
    for name, text, at in _java(error) or ():
        yield f"{name} at"
        yield from (f"  {frame}" for frame in at)
        if name.endswith(PYTHON_WORKER):
            yield from (f"  {frame}" for frame in _WORKER_FRAME.findall(text))


def _of_python(error: BaseException) -> Cause:
    # An error of the operating system speaks of a file or an address; one without a number is a library's own.
    harmless = isinstance(error, OSError) and error.errno is not None
    try:
        text = str(error)
    except Exception:  # one of Java's, which asks a JVM that is gone
        text = "?"
    return Cause(type(error).__name__, text, harmless)


def _of_java(name: str, text: str, _: list[str]) -> Iterator[Cause]:
    yield Cause(name, text, (_HARMLESS.fullmatch(name) or _FULL_TEXT.fullmatch(text)) is not None)
    if name.endswith(PYTHON_WORKER):
        lines = [line for line in text.splitlines() if line and not line.startswith((" ", "Traceback"))]
        last = next((f for line in reversed(lines) if (f := _WORKER_CLASS.fullmatch(line)) is not None), None)
        if last is not None:
            yield Cause(last[1], last[2] or "", last[1].startswith("tailrace.errors."))


def _java(error: BaseException) -> list[tuple[str, str, list[str]]] | None:
    """(class, text, places) of a Java exception and its causes; None: it is none, or the JVM is gone. py4j's own carry
    it as `java_exception`, those that pyspark has turned into its own as `_origin`."""
    at: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if at is None:
        return None
    found: list[tuple[str, str, list[str]]] = []
    try:
        while at is not None and len(found) < LONGEST:
            trace = at.getStackTrace()
            places = [str(trace[number].toString()) for number in range(min(JAVA_FRAMES, len(trace)))]
            found.append((str(at.getClass().getName()), str(at.getMessage() or ""), places))
            at = at.getCause()
    except Exception:  # the JVM went away: what was told until then is all there is
        return found or None
    return found
