"""Delta's own log and transactions behind a few Python calls (py4j), for tables whose features Tailrace leaves to Delta
(`protocol.is_direct`). Nothing else in Tailrace touches Delta's classes.

Called by `delta.DeltaTable`. Actions travel as Delta's JSON. A refused commit becomes `Retry`; every other failure of a
commit is `OutcomeUnknown`, because the log entry may have been written before it (hooks run after it).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import SparkSession

from tailrace.errors import OutcomeUnknown, Retry, privacy
from tailrace.targets.lake.delta import classes
from tailrace.targets.lake.known_names import known_names

Action = dict[str, Any]
POINTER = "_last_checkpoint"
_DEFAULTS = "spark.databricks.delta.properties.defaults."
_JVM_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Variables with which settings of Spark get past `spark.settings`."""
_CONFLICTS = (
    "io.delta.exceptions.",
    "org.apache.spark.sql.delta.DeltaConcurrentModificationException",
    "org.apache.spark.sql.delta.ConcurrentWriteException",
)


@dataclass(frozen=True)
class DeltaSnapshot:
    """One version of the table. `handle` is Delta's object."""

    version: int
    handle: Any

    def metadata(self) -> Action:
        found: Action = json.loads(self.handle.metadata().json())["metaData"]
        return found

    def protocol(self) -> Action:
        try:
            found: Action = json.loads(self.handle.protocol().json())["protocol"]
        except Py4JError as error:
            raise Retry(f"Delta log cannot be read: {privacy.error_text(error)}") from error
        return found

    def domains(self) -> dict[str, str]:
        """Domain -> configuration."""
        found = self.handle.domainMetadata()
        each = [found.apply(number) for number in range(found.size())]
        return {str(domain.domain()): str(domain.configuration()) for domain in each}

    def log_files(self) -> list[str]:
        """Names of the files of `_delta_log` that make up the version: the checkpoint's, then the commits' in order."""
        try:
            segment = self.handle.logSegment()
            parts = (segment.checkpointProvider().topLevelFiles(), segment.deltas())
            return [str(part.apply(n).getPath().getName()) for part in parts for n in range(part.size())]
        except Py4JError as error:
            raise Retry(f"Delta log cannot be read: {privacy.error_text(error)}") from error

    def checkpoint(self) -> int:
        """The version of the checkpoint that this one is read from, -1: of none."""
        return int(self.handle.logSegment().checkpointProvider().version())

    def files(self) -> Iterator[Action]:
        """The `add` actions of every live file."""
        return self._rows(self.handle.allFiles())

    def removed(self) -> Iterator[Action]:
        """The `remove` actions that the log still carries."""
        return self._rows(self.handle.tombstones())

    def _rows(self, dataset: Any) -> Iterator[Action]:
        rows = dataset.toJSON().collectAsList()
        for number in range(rows.size()):
            yield json.loads(rows.get(number))


def makes_tables_otherwise(spark: Callable[[], SparkSession], environment: Mapping[str, str]) -> bool:
    """True if the session's settings give new tables properties (`spark.databricks.delta.properties.defaults`). A
    manifest may not set them, so only the environment can: unless it has options for the JVM, or names such a setting,
    the session is not asked, which may still be starting."""
    names = (name.replace("_", ".") for name in environment)
    if not any(map(environment.get, _JVM_OPTIONS)) and not any(_DEFAULTS in name for name in names):
        return False
    return _DEFAULTS in str(spark().sparkContext._jsc.sc().conf().toDebugString())


class DeltaLog:
    """One table's log. The JVM's driver must live; a lost JVM shows as `Retry` (or `OutcomeUnknown` in a commit)."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        classes.ensure(spark._jvm)
        jvm = known_names(spark._jvm)
        self._jvm = jvm
        self._delta: Any = jvm.org.apache.spark.sql.delta
        self._none: Any = jvm.scala.Option.empty()
        self._activate()
        session = spark._jsparkSession
        # A cached log of a table that was deleted meanwhile would answer from memory.
        self._delta.DeltaLog.invalidateCache(session, jvm.org.apache.hadoop.fs.Path(location))
        self._log: Any = self._delta.DeltaLog.forTable(session, location)

    def _activate(self) -> None:
        """Delta asks for the calling thread's session; a Python thread that Spark did not start has none."""
        self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._spark._jsparkSession)

    def update(self) -> DeltaSnapshot | None:
        """The newest version; None: there is no table."""
        try:
            self._activate()
            handle = self._log.update(False, self._none, self._none)
            version = int(handle.version())
        except Py4JError as error:
            raise Retry(f"Delta log cannot be read: {privacy.error_text(error)}") from error
        return None if version < 0 else DeltaSnapshot(version, handle)

    def commit(self, base: DeltaSnapshot | None, actions: Sequence[Action], metadata: Action | None) -> int:
        """Commit on top of `base` (None: create the table); returns the new version. Where the table wants a
        checkpoint, Delta writes it, as a Spark job."""
        made = None if metadata is None else json.dumps({"metaData": metadata})
        txn = next((action["txn"] for action in actions if "txn" in action), {"appId": "tailrace", "version": 0})
        lines = "\n".join(map(json.dumps, actions))
        on = None if base is None else base.handle
        try:
            prepared = self._jvm.dev.tailrace.Transaction.prepare(
                self._spark._jsparkSession, self._log, on, made, lines, txn["appId"], txn["version"]
            )
        except Py4JError as error:
            raise Retry(f"Delta transaction cannot start: {privacy.error_text(error)}") from error
        try:
            return int(prepared.send())
        except Py4JJavaError as error:
            if java_class(error).startswith(_CONFLICTS):
                raise Retry(f"somebody else changed the table: {privacy.error_text(error)}") from error
            raise OutcomeUnknown(f"Delta commit failed: {privacy.error_text(error)}") from error
        except (Py4JNetworkError, Py4JError) as error:
            raise OutcomeUnknown(f"Delta commit was interrupted: {privacy.error_text(error)}") from error


def java_class(error: Py4JJavaError) -> str:
    return str(error.java_exception.getClass().getName())
