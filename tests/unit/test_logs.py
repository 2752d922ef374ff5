"""Where log lines go."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from tailrace import logs


@pytest.fixture
def root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_log_file_is_moved_aside_before_it_grows_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: None
) -> None:
    """`capture.log` grew as long as the driver ran."""
    monkeypatch.setattr(logs, "FILE_BYTES", 10_000)
    file = tmp_path / "capture.log"
    logs.configure("text", "info", file)
    for number in range(2_000):
        logging.getLogger("tailrace.test").info("line %d", number)
    assert "line 1999" in file.read_text()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000


def test_lines_that_are_kept_have_a_date_and_the_offset_of_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "capture.log"
    dated = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4} info    hello$"
    logs.configure("text", "info", file)
    logging.getLogger("tailrace.test").info("hello")
    assert re.fullmatch(dated, file.read_text().strip())
    logs.configure("text", "info")
    logging.getLogger("tailrace.test").info("hello")
    assert re.fullmatch(dated, capsys.readouterr().err.strip())
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    logs.configure("text", "info")
    logging.getLogger("tailrace.test").info("hello")
    assert re.fullmatch(r"^\d\d:\d\d:\d\d\.\d{3} info    hello$", capsys.readouterr().err.strip())


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\n12:00 error b", "a\\n12:00 error b"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_a_name_neither_steers_the_terminal_nor_forges_a_line(
    tmp_path: Path, root: None, name: str, written: str
) -> None:
    file = tmp_path / "capture.log"
    logs.configure("text", "info", file)
    logging.getLogger("tailrace.test").info("table %s", name, extra={"table": name})
    (line,) = file.read_text().splitlines()
    assert line.endswith(f"table {written} [table={written}]")


def test_an_interrupted_call_into_the_jvm_is_no_error(tmp_path: Path, root: None) -> None:
    """py4j logged a traceback of every second Ctrl-C that met a call of the main thread."""
    file = tmp_path / "log"
    logs.configure("text", "info", file)
    for error in (KeyboardInterrupt(), OSError(5, "what is an error")):
        try:
            raise error
        except BaseException:
            logging.getLogger("py4j.java_gateway").exception("%s while sending command.", type(error).__name__)
    text = file.read_text()
    assert "OSError while sending command" in text and "what is an error" in text
    assert "KeyboardInterrupt" not in text


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("form", logs.FORMS)
def test_what_ends_a_process_is_said_in_the_form_of_the_log(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(form)
    value = "of a row"
    try:
        raise KeyError(value)
    except KeyError as error:
        logs.complain("tailrace: an unexpected error", error)
    logs.complain("tailrace: PositionLost: the slot is gone")
    said = capsys.readouterr().err
    assert value not in said
    if form == "text":
        assert "Traceback" in said and said.endswith("tailrace: PositionLost: the slot is gone\n")
        return
    first, second = (json.loads(line) for line in said.splitlines())
    assert first["message"] == "tailrace: an unexpected error" and "KeyError" in first["exception"]
    assert (second["level"], second["message"]) == ("error", "tailrace: PositionLost: the slot is gone")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_that_says_it_has_no_error_is_written(root: None, capsys: pytest.CaptureFixture[str], form: str) -> None:
    """`exc_info=False` was an error in the log itself: no warning of a table's apply ever came there."""
    logs.configure(form, "info")
    logging.getLogger("tailrace.test").warning("a table is away", exc_info=False)
    assert "a table is away" in capsys.readouterr().err


def test_pysparks_own_copies_of_errors_and_its_class_of_loggers_stay_out_of_the_log(
    root: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of a query was written a second time, with the row's value in it: `The value 'secret' of the type …`."""
    from pyspark.errors.exceptions.base import PySparkException
    from pyspark.logger import PySparkLogger

    class Failed(PySparkException):
        context_type: str

        @override
        def getQueryContext(self) -> list[Any]:
            kind = SimpleNamespace(name=self.context_type)
            return [SimpleNamespace(contextType=lambda: kind, callSite=lambda: "a.py:1", fragment=lambda: "cast")]

    monkeypatch.setattr(logging.Logger.manager, "loggerClass", None)  # as a process begins
    for name in logs.PYSPARK_LOGGERS:
        monkeypatch.delitem(logging.Logger.manager.loggerDict, name, raising=False)
    logs.configure("text", "info")
    for context_type in ("SQL", "DataFrame"):
        error = Failed("The value 'secret' cannot be cast")
        error.context_type = context_type
        error._log_exception()
    assert capsys.readouterr().err == ""
    made = PySparkLogger.getLogger("tailrace.made_while_pyspark_makes_its_own")
    assert type(made) is logging.Logger
    made.warning("one line")
    assert capsys.readouterr().err.count("one line") == 1
