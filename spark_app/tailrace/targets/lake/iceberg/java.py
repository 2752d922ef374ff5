"""The edge to Iceberg's Java API in the driver's JVM: the entry points used, and Java exceptions turned into ours.

Everything here is public API of Iceberg 1.12 (`api`, `core`, `parquet`), called by py4j from the Spark driver. One call
costs some 0.1 ms, so callers ask for JSON of a whole object rather than for its fields.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from typing_extensions import override

from tailrace.errors import OutcomeUnknown, Retry, TailraceError, TargetRefused, privacy
from tailrace.targets.api import DriverJvm
from tailrace.targets.lake.known_names import known_names

_PACKAGE = "org.apache.iceberg.exceptions."
_REFUSED = {_PACKAGE + name for name in ("NotAuthorizedException", "ForbiddenException")}
_GONE = {_PACKAGE + name for name in ("NoSuchTableException", "NotFoundException")}
_REPLACED = ("UUID does not match", "Metadata file for version")
"""How Iceberg says, in the midst of other errors, that another table is in the place of the one that was loaded."""
_NO_NUMBER = "A property of the target table is no number where Iceberg needs one: see SHOW TBLPROPERTIES in Spark."
_LINE = 300
_PARQUET_HEAD, _PARQUET_TAIL = len(b"PAR1"), len(b"0000PAR1")
"""Bytes before and after the footer in a file that consists of nothing else; the tail begins with its length."""


class CommitConflict(Retry):
    """The table was changed between reading and committing. Shown as the `Retry` that it is."""

    @property
    @override
    def name(self) -> str:
        return Retry.__name__


def replaced(name: str, detail: str) -> CommitConflict:
    """The conflict of a table that was replaced. The result shows when it is opened: it is created again, and filled
    from the log as far as possible; another's table in its place is refused."""
    return CommitConflict(f"the target table {name} was dropped or re-created ({detail})", "It is opened again.")


class MissingTable(TailraceError):
    """The catalog has no such table, or no longer."""


@dataclass(frozen=True)
class Java:
    """The JVM's side: py4j's gateway, its Hadoop configuration for file systems."""

    gateway: Any
    hadoop: Any

    @classmethod
    def of(cls, spark: Any) -> "Java":
        """The JVM of a classic SparkSession (Spark Connect has none)."""
        return cls(spark.sparkContext._gateway, spark._jsc.hadoopConfiguration())

    @classmethod
    def on(cls, jvm: DriverJvm) -> "Java":
        """The JVM, whether it has a session or not."""
        return cls(jvm.gateway, jvm.hadoop)

    @property
    def jvm(self) -> Any:
        return known_names(self.gateway.jvm)

    @property
    def iceberg(self) -> Any:
        return self.jvm.org.apache.iceberg

    def map(self, values: Mapping[str, str]) -> Any:
        """A map of Java by two calls, however many entries it has."""
        hash_map = self.jvm.java.util.HashMap
        return hash_map(self.iceberg.rest.RESTUtil.decodeFormData(urlencode(values))) if values else hash_map()

    def properties(self, table: Any) -> dict[str, str]:
        """A table's, by one call. Iterating over a map of Java takes one for each key, and then an exception, which is
        a dozen."""
        text = str(self.iceberg.rest.RESTUtil.encodeFormData(table.properties()))
        return dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True)) if text else {}

    def string_array(self, *values: str) -> Any:
        out = self.gateway.new_array(self.jvm.java.lang.String, len(values))
        for number, value in enumerate(values):
            out[number] = value
        return out

    @cached_property
    def _footers(self) -> Any:
        parquet = self.iceberg.shaded.org.apache.parquet
        options = parquet.ParquetReadOptions.builder(parquet.conf.PlainParquetConfiguration()).build()
        return parquet.format.converter.ParquetMetadataConverter(options)

    def metrics(self, footer: pq.FileMetaData, config: Any) -> Any:
        """A file's column metrics by Iceberg's own rules, from a footer in memory: from a file, Iceberg would read it
        again, and Hadoop's configuration with it (docs/decisions/0055)."""
        read = self._footers.readParquetMetadata(self.jvm.java.io.ByteArrayInputStream(footer_bytes(footer)))
        return self.iceberg.parquet.ParquetUtil.footerMetrics(read, self.jvm.java.util.stream.Stream.empty(), config)

    def strings(self, values: list[str]) -> Any:
        """A Java list by one call, however long (paths never hold a line feed: Tailrace and Iceberg escape them)."""
        return self.jvm.java.util.regex.Pattern.compile("\n").splitAsStream("\n".join(values)).toList()


def footer_bytes(footer: pq.FileMetaData) -> bytes:
    sink = pa.BufferOutputStream()
    footer.write_metadata_file(sink)
    return bytes(sink.getvalue().to_pybytes()[_PARQUET_HEAD:-_PARQUET_TAIL])


def _name_and_text(error: Exception) -> tuple[str, str]:
    if isinstance(error, Py4JJavaError):
        java = error.java_exception
        name, text = str(java.getClass().getName()), str(java.getMessage() or "")
    else:  # the JVM went away, or pyspark turns some of its exceptions into its own
        name, text = type(error).__name__, str(error)
    return name, (text.splitlines() or [""])[0][:_LINE]


def is_bad_argument(error: BaseException | None) -> bool:
    """True if Java's IllegalArgumentException is among its causes."""
    return isinstance(error, Exception) and "IllegalArgumentException" in _name_and_text(error)[0]


@contextmanager
def guarded(table: str, doing: str, committing: bool = False) -> Iterator[None]:
    """Java's exceptions as ours. `committing`: only a proven refusal means that nothing was written."""
    try:
        yield
    except (Py4JJavaError, Py4JNetworkError, PySparkException) as error:
        name, text = _name_and_text(error)
        said = f"{doing} {table}: {privacy.error_text(error)}"
        if name in _REFUSED:
            raise TargetRefused(said, "Give the catalog's user the right to do this.") from error
        if name in _GONE and not committing:
            raise MissingTable(said) from error
        if any(sign in text for sign in _REPLACED):
            raise MissingTable(said) from error
        if _is_conflict(name, text):
            raise CommitConflict(said, "The table is read again and the batch located again.") from error
        if committing:
            raise OutcomeUnknown(said, "The table is read back first.") from error
        raise Retry(said, _NO_NUMBER if name.endswith("NumberFormatException") else "") from error


def _is_conflict(name: str, text: str) -> bool:
    if name in (_PACKAGE + "ValidationException", _PACKAGE + "CommitFailedException"):
        return True
    return "IllegalArgumentException" in name and "is not an ancestor" in text
