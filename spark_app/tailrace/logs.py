"""Logging of the driver and of capture: one line per event, as text or as JSON, to standard error. Secrets never come
here: messages are made of names, numbers and `TailraceError`s.
"""

import json
import logging
import sys
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO

from typing_extensions import override

from tailrace.errors import privacy

FORMS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
FIELDS = ("table", "snapshot", "chunk", "record")
"""Fields that a line may carry besides its message: `log.info(…, extra={"table": …})`."""


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_REORDERING = (0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Marks and overrides of the direction of writing, and Unicode's own ends of lines."""
_CONTROLS |= {code: f"\\u{code:04x}" for code in _REORDERING}
_CONTROLS |= {ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r"}


def visible(text: str) -> str:
    """One line, without what a terminal would obey: names in a database may hold every character."""
    return text.translate(_CONTROLS)


def _traceback(record: logging.LogRecord) -> str:
    assert record.exc_info is not None
    error = record.exc_info[1]
    return "" if error is None else privacy.traceback_text(error)


class TextFormatter(logging.Formatter):
    """`watched`: on a terminal, where the day is known; else each line has date and offset."""

    def __init__(self, watched: bool) -> None:
        super().__init__()
        self._watched = watched

    @override
    def format(self, record: logging.LogRecord) -> str:
        local = time.localtime(record.created)
        day, offset = ("", "") if self._watched else (time.strftime("%Y-%m-%dT", local), time.strftime("%z", local))
        at = f"{day}{time.strftime('%H:%M:%S', local)}.{int(record.msecs):03d}{offset}"
        where = " ".join(f"{name}={getattr(record, name)}" for name in FIELDS if hasattr(record, name))
        said = visible(record.getMessage() + (f" [{where}]" if where else ""))
        line = f"{at} {record.levelname.lower():7} {said}"
        return line + (f"\n{_traceback(record)}" if record.exc_info else "")


class JsonFormatter(logging.Formatter):
    @override
    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        document |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            document["exception"] = _traceback(record)
        return json.dumps(document, ensure_ascii=False)


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is at the time: a live display puts its own in its place."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property  # type: ignore[explicit-override]  # mypy does not see @override on a property with a setter
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        raise AttributeError("the stream follows sys.stderr")


def _no_interrupt(record: logging.LogRecord) -> bool:
    """A second Ctrl-C may interrupt a call into the JVM, and py4j logs that with a traceback: nothing is wrong."""
    # `exc_info=False` is kept as it was given.
    return not record.exc_info or not isinstance(record.exc_info[1], KeyboardInterrupt)


PYSPARK_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark writes each error of a query here, before anyone catches it, with the values that it names."""


def silence_pyspark() -> None:
    """Keep PySpark's copies of errors out of the log: who catches an error says it, without values of rows.

    PySpark makes its loggers by changing the class of all loggers for a moment, in any thread; one that another thread
    makes meanwhile would write a second line in PySpark's form. So the class is pinned, and its loggers are made here.
    """
    logging.Logger.manager.setLoggerClass(logging.Logger)
    for name in PYSPARK_LOGGERS:
        logging.getLogger(name).disabled = True


FILE_BYTES = 32 << 20
"""Size of a log file at which it replaces the former one and a new one begins: a process runs for years."""


def configure(form: str, level: str = "INFO", file: Path | None = None) -> None:
    """Send the log of `tailrace` to standard error, or to a file and its predecessor, in `text` or `json`; libraries
    speak up from warnings on. Tracebacks, those of uncaught errors included, hold no values of rows."""
    privacy.guard_tracebacks()
    silence_pyspark()
    handler = _StandardError() if file is None else RotatingFileHandler(file, maxBytes=FILE_BYTES, backupCount=1)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(file is None and sys.stderr.isatty()))
    handler.addFilter(_no_interrupt)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("tailrace").setLevel(level.upper())
    logging.getLogger("py4j").setLevel(logging.ERROR)


def complain(text: str, error: BaseException | None = None) -> None:
    """Prints the end of a process on standard error: in the form of the log, or unchanged where the log is text.
    `error`: an unexpected one; its traceback, without values, follows."""
    if any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers):
        logging.getLogger("tailrace").error(text, exc_info=error)
        return
    print(visible(text), file=sys.stderr)
    if error is not None:
        print(privacy.traceback_text(error), file=sys.stderr)
