"""Of exceptions of libraries their classes, causes and places are told; texts only where they are harmless."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from typing_extensions import override

import tailrace
from support.syntax import tree, walk
from tailrace.contract.faults import fault_of
from tailrace.errors import TailraceError, privacy
from tailrace.targets.lake.delta.log import DeltaLog, DeltaSnapshot
from tailrace.targets.lake.iceberg.java import guarded

CANARY = "CANARY-7f3a"


class Java:
    """A Java exception as py4j shows it."""

    def __init__(self, name: str, text: str = CANARY, cause: "Java | None" = None) -> None:
        self.name, self.text, self.cause = name, text, cause
        self._target_id, self._gateway_client = "", None

    def getClass(self) -> Any:
        return self

    def getName(self) -> str:
        return self.name

    def getMessage(self) -> str:
        return self.text

    def getCause(self) -> "Java | None":
        return self.cause

    def getStackTrace(self) -> Any:
        return [self]

    def toString(self) -> str:
        return "org.example.Reader.read(Reader.java:7)"

    @override
    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class Raised(Py4JJavaError):  # type: ignore[misc]  # untyped in py4j
    """Without a JVM, which `str` would ask."""

    def __init__(self, java: Java) -> None:
        Exception.__init__(self, "An error occurred while calling o1.x")
        self.java_exception = java

    @override
    def __str__(self) -> str:
        return f"An error occurred while calling o1.x.\n{self.java_exception}"


WORKER = """
Traceback (most recent call last):
  File "/app/tailrace/apply/engine.py", line 12, in do_part
    raise KeyError(x)
{}
"""


@pytest.fixture(autouse=True)
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(privacy.VARIABLE, raising=False)


def through(error: Exception, to: Any) -> Iterator[str]:
    """What a person reads of it, by one of the edges."""
    try:
        to(error)
    except Exception as told:
        if isinstance(told, TailraceError):
            yield str(told)
        yield fault_of(told, 0.0).message
        yield privacy.traceback_text(told)
    else:
        yield privacy.error_text(error)
        yield fault_of(error, 0.0).message


def raised(error: Exception) -> None:
    raise error


def iceberg(committing: bool) -> Any:
    def to(error: Exception) -> None:
        with guarded("s.t", "committing", committing):
            raise error

    return to


class _Broken:
    """A log of Delta's of which every call fails."""

    def __init__(self, error: Exception, after: int = 0) -> None:
        self.error, self.after = error, after

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> Any:
            if self.after:
                self.after -= 1
                return self
            raise self.error

        return call


def delta(method: str, *arguments: Any, after: int = 0) -> Any:
    def to(error: Exception) -> None:
        log = DeltaLog.__new__(DeltaLog)
        broken: Any = _Broken(error, after)
        log._log = log._delta = broken
        log._spark = cast(Any, SimpleNamespace(_jsparkSession=None))
        log._jvm = SimpleNamespace(dev=SimpleNamespace(tailrace=SimpleNamespace(Transaction=broken)))
        log._none = None
        log.__dict__["_activate"] = lambda: None
        found = getattr(log, method)(*arguments)
        if found is not None:
            list(found)

    return to


EDGES = {
    "text": lambda error: None,
    "fault": raised,
    "iceberg": iceberg(False),
    "iceberg's commit": iceberg(True),
    "delta's update": delta("update"),
    "delta's start": delta("commit", DeltaSnapshot(1, None), [], None),
    "delta's commit": delta("commit", DeltaSnapshot(1, None), [], None, after=1),
}
CLASSES = [
    "java.lang.NumberFormatException",
    "org.apache.iceberg.exceptions.ValidationException",
    "org.apache.iceberg.exceptions.CommitFailedException",
    "org.apache.iceberg.exceptions.NoSuchTableException.Not",
    "io.delta.exceptions.ConcurrentAppendException",
    "org.apache.spark.sql.delta.VersionNotContiguousException",
    "org.apache.spark.SparkException",
]


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("edge", EDGES)
def test_no_edge_lets_the_text_of_a_java_exception_through_and_each_names_its_classes(edge: str, name: str) -> None:
    error = Raised(Java(name, CANARY, Java("java.io.IOException", CANARY)))
    texts = list(through(error, EDGES[edge]))
    assert texts
    for text in texts:
        assert CANARY not in text
        assert f"{name} <- java.io.IOException" in text
    assert privacy.WITHHELD in texts[0]


@pytest.mark.parametrize("edge", EDGES)
def test_a_text_about_hosts_files_and_rights_is_told(edge: str) -> None:
    error = Raised(Java("java.lang.RuntimeException", CANARY, Java("java.net.ConnectException", "Connection refused")))
    for text in through(error, EDGES[edge]):
        assert "java.lang.RuntimeException <- java.net.ConnectException: Connection refused" in text
        assert CANARY not in text


@pytest.mark.parametrize("text", ["No space left on device", "Disk quota exceeded"])
def test_that_a_disk_is_full_is_told_whatever_class_says_it(text: str) -> None:
    error = Raised(Java("org.apache.spark.SparkException", CANARY, Java("java.io.IOException", text)))
    assert f"java.io.IOException: {text}" in privacy.error_text(error)
    mixed = Raised(Java("java.io.IOException", f"{CANARY}: {text}"))
    assert CANARY not in privacy.error_text(mixed)


def test_whoever_asks_for_values_gets_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(privacy.VARIABLE, "1")
    error = Raised(Java("a.B", CANARY, Java("c.D", "more\nlines")))
    assert privacy.error_text(error) == f"a.B: {CANARY} <- c.D: more"


def test_an_exception_that_pyspark_has_turned_into_its_own_names_java_s() -> None:
    error = CapturedException.__new__(CapturedException)
    error._origin = Java("org.apache.spark.SparkNumberFormatException", CANARY)
    assert privacy.error_text(error) == f"org.apache.spark.SparkNumberFormatException ({privacy.WITHHELD})"


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (f"KeyError: '{CANARY}'", "KeyError ("),
        ("tailrace.errors.Retry: Retry: the store is away", "tailrace.errors.Retry: Retry: the store is away"),
        ("tailrace.errors.privacy.Withheld: ValueError (text)", "tailrace.errors.privacy.Withheld: ValueError (text)"),
    ],
)
def test_of_a_python_task_the_class_and_the_places_are_told(last: str, told: str) -> None:
    java = Java("org.apache.spark.api.python.PythonException", WORKER.format(last))
    error = Raised(Java("org.apache.spark.SparkException", f"Job aborted {CANARY}", java))
    before = "org.apache.spark.SparkException <- org.apache.spark.api.python.PythonException <- "
    assert privacy.error_text(error).startswith(before + told)
    text = privacy.traceback_text(error)
    assert 'File "/app/tailrace/apply/engine.py", line 12, in do_part' in text
    assert "org.example.Reader.read(Reader.java:7)" in text and CANARY not in text


def test_a_jvm_that_is_gone_leaves_what_python_knows() -> None:
    class Gone(Java):
        @override
        def getStackTrace(self) -> Any:
            raise ConnectionRefusedError

    assert privacy.error_text(Raised(Gone("x"))) == f"Raised ({privacy.WITHHELD})"


def test_an_internal_error_names_the_place_in_our_code() -> None:
    try:
        privacy.shown(5)  # type: ignore[arg-type]  # the wrong type is what is tested
    except TypeError as error:
        assert " at errors/privacy.py:" in fault_of(error, 0.0).message


def test_the_system_s_own_words_stay_and_a_library_s_do_not() -> None:
    assert "No space left on device" in privacy.error_text(OSError(28, "No space left on device", "/log/x"))
    assert CANARY not in privacy.error_text(OSError(CANARY))


FOREIGN = {"Exception", "BaseException", "Py4JError", "Py4JJavaError", "Py4JNetworkError", "PySparkException"}
FOREIGN |= {
    "ArrowException",
    "ArrowInvalid",
    "ArrowTypeError",
    "KeyError",
    "TypeError",
    "RuntimeError",
    "OverflowError",
    "ValidationError",
}
WITHOUT_ROWS = {"manifest.py", "cluster.py", "session.py"}
"""What they read, or start, holds no rows: a manifest, an answer of Kubernetes, a JVM that did not start."""
THE_TELLERS = {"errors/privacy.py", "errors/foreign.py"}


def _caught(handler: ast.ExceptHandler) -> set[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", "") for kind in kinds}


def _told(handler: ast.ExceptHandler) -> Iterator[int]:
    """Lines that put the caught exception itself into a text."""
    for node in walk(handler):
        given: list[ast.expr] = []
        if isinstance(node, ast.FormattedValue):
            given = [node.value]
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = node.args if called in ("str", "repr", "warning", "error", "info") else []
        yield from (value.lineno for value in given if isinstance(value, ast.Name) and value.id == handler.name)


def test_nobody_tells_a_foreign_exception_s_text_by_himself() -> None:
    root = Path(tailrace.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in sorted(root.rglob("*.py"))
        if path.name not in WITHOUT_ROWS | THE_TELLERS and "demo" not in path.parts
        for handler in walk(tree(path))
        if isinstance(handler, ast.ExceptHandler) and _caught(handler) & FOREIGN
        for line in _told(handler)
    ]
    assert found == []
