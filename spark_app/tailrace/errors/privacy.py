"""Values and keys of rows are personal data: what people read names them by a type and a short hash.

Logs, status, events, resources and the journal's error texts go through here, in every process. `spec.showValues` turns
it off for a Replicator; it reaches child processes and executors as an environment variable. The hash tells equal
values from others and is too short to find a value by trying.
"""

import hashlib
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from tailrace.errors import TailraceError, foreign

VARIABLE = "TAILRACE_SHOW_VALUES"
SHOWN = 80
"""Characters of a value that a message repeats."""
WITHHELD = "text withheld, it may hold values of rows: see spec.showValues"
_QUOTED = re.compile(r'".*"', re.DOTALL)


class Withheld(RuntimeError):
    """An error of a library, without its text."""


def configure(show_values: bool) -> None:
    """Configures this process and those that it starts."""
    if show_values:
        os.environ[VARIABLE] = "1"
    else:
        os.environ.pop(VARIABLE, None)


def showing() -> bool:
    return os.environ.get(VARIABLE) == "1"


def shown(value: str | bytes, kind: str = "value") -> str:
    """`text #3fa9`, or the value itself where that was asked for."""
    raw = value.encode(errors="surrogatepass") if isinstance(value, str) else value
    if not showing():
        return f"{kind} #{hashlib.blake2b(raw, digest_size=2).hexdigest()}"
    try:
        return repr(raw[: SHOWN * 4].decode("utf-8")[:SHOWN])
    except UnicodeDecodeError:
        return f"bytes {raw[:SHOWN].hex()}"


def key(values: Sequence[str]) -> str:
    """A row's key."""
    return ",".join(values) if showing() else shown("\0".join(values), "").strip()


def error_text(error: BaseException) -> str:
    """Any exception in a line. Tailrace's own contain no values of rows. Others may: of them only the names of their
    classes are shown, down to the first cause, and the texts of those that are about files and connections."""
    if isinstance(error, TailraceError | Withheld):
        return _first_line(str(error))
    causes = foreign.chain(error)
    if showing():
        texts = [cause.named(_first_line(cause.text)) for cause in causes]
    else:
        texts = [cause.named(_first_line(cause.text) if cause.harmless else "") for cause in causes]
        if any(cause.text and not cause.harmless for cause in causes):
            texts[-1] += f" ({WITHHELD})"
    return " <- ".join(texts)


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0][:500]


def server_text(text: str, sqlstate: str | None) -> str:
    """A database's own message (its first part alone: details, context and the statement repeat rows)."""
    if showing() or sqlstate is None:
        return text
    kind = sqlstate[:2]
    if kind in ("22", "23"):  # data and constraints: the value stands in quotes, or at the end
        return _QUOTED.sub("…", re.sub(r':\s+["0].*$', "", text, flags=re.DOTALL))
    return WITHHELD if kind == "P0" or not kind.isalnum() or sqlstate in ("00000", "") else text


@contextmanager
def withheld() -> Iterator[None]:
    """Around what runs on executors: Spark repeats an exception's text in its own logs and errors."""
    try:
        yield
    except TailraceError:
        raise
    except Exception as error:
        if showing():
            raise
        raise Withheld(error_text(error)).with_traceback(error.__traceback__) from None


def traceback_text(error: BaseException) -> str:
    """The places in the code that it passed; its text only as far as that may be shown."""
    if showing():
        return "".join(traceback.format_exception(error)).rstrip()
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = f"{traceback_text(cause)}\n\nwhich led to:\n\n" if cause is not None else ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    inside = "".join(f"  {line}\n" for line in foreign.frames(error))
    return f"{before}Traceback (most recent call last):\n{frames}{inside}{error_text(error)}"


def guard_tracebacks() -> None:
    """Prints uncaught exceptions in the same way."""

    def report(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
        print(traceback_text(error), file=sys.stderr)

    def report_thread(arguments: threading.ExceptHookArgs) -> None:
        if arguments.exc_value is not None and not isinstance(arguments.exc_value, SystemExit):
            print(traceback_text(arguments.exc_value), file=sys.stderr)

    sys.excepthook, threading.excepthook = report, report_thread
