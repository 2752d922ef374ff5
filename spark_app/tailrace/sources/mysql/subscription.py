"""The objects of a change log in MySQL or MariaDB, behind `sources.api.Subscription`: none are created there, so a
start only proves that the server's log can be followed, and a removal finds nothing.

On capture's SQL connection, and on those of `tailrace doctor` and `tailrace drop`.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from tailrace.changelog.records import Origin
from tailrace.changelog.records.terms import ResumePoint
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.databases.mysql.connect import Connection, server_of
from tailrace.sources import patterns
from tailrace.sources.api import Patience, RemovalProof, RemovalStep, StreamContext
from tailrace.sources.findings import Examination, TableSize, refuse
from tailrace.sources.mysql import admission, preflight, signal_table
from tailrace.sources.mysql.catalog import discover, of_other_case
from tailrace.sources.mysql.facts import Facts, observe
from tailrace.sources.mysql.log.stream import MysqlStream
from tailrace.sources.mysql.model import identity
from tailrace.sources.mysql.source_config import SourceConfig
from tailrace.sources.mysql.support import describe, sizes

log = logging.getLogger(__name__)
_LEFT_OUT = (
    "Changes that were kept out of the log are lost to it: if there may be any, afterwards resync the tables concerned"
    " (`tailrace resync -f <manifest> --tables <pattern>`, or a SnapshotRequest with resync: true)."
)


class MysqlSubscription:
    def __init__(self, config: SourceConfig, connection: Connection, replicator: Replicator) -> None:
        self._config = config
        self._connection = connection
        self._replicator = replicator

    def admit(
        self, origin: Origin, point: ResumePoint, renewing: bool, stopping: threading.Event | None = None
    ) -> None:
        if not renewing:
            admission.check_server(origin, server_of(self._connection))
            admission.check_point(self._config, self._connection, origin, point, stopping)

    def prepare(self, log_id: str, noted: Origin | None, patience: Patience) -> Origin:
        self._require_fit()
        identity = admission.identity(server_of(self._connection), self._replicator, log_id)
        return Origin(log_id=log_id, source="mysql", identity=identity, owner=ownership.owner(self._replicator))

    def begin(self, origin: Origin, patience: Patience) -> ResumePoint:
        return admission.end_without_prepared(self._config, self._connection, patience)

    def renew(self, origin: Origin, patience: Patience) -> tuple[dict[str, str], ResumePoint]:
        self._require_fit()
        identity = admission.identity(server_of(self._connection), self._replicator, origin.log_id)
        return identity, self.begin(origin, patience)

    def failed_over(self, origin: Origin, point: ResumePoint) -> tuple[dict[str, str], ResumePoint] | None:
        found = admission.failed_over(self._config, self._connection, origin, point)
        if found is not None:
            facts = self._require_fit()
            # Databases whose tables were all left out are in the patterns only.
            named = {pattern.partition(".")[0] for pattern in self._replicator.spec.tables.include}
            databases = {n for n in named if not set(n) & set("*?")} | {t.schema_name for t in facts.tables}
            refuse(preflight.whole_copy(facts, databases, follows=True))
        return found

    def resume(self, origin: Origin, point: ResumePoint) -> None:
        """A predecessor that is still connected reads on without use; the server ends it when it cannot write to it."""
        admission.check_point(self._config, self._connection, origin, point)
        # Unlike other settings, what keeps changes out of the log shows in no event of it.
        refuse(replace(f, fix=f"{f.fix} {_LEFT_OUT}") for f in preflight.binary_log(observe(self._connection, ())))

    def stream(self, origin: Origin, context: StreamContext) -> MysqlStream:
        config = admission.bound(self._config, origin)
        server_id = int(origin.identity[admission.SERVER_ID])
        return MysqlStream(config, self._connection, self._replicator, server_id, context)

    def examine(self, origin: Origin | None, renewing: bool) -> Examination:
        spec = self._replicator.spec
        tables = discover(self._connection, spec.read_tables, spec.read_options)
        facts = observe(self._connection, tables)
        found = sizes(self._connection, tables)
        described = (describe(t, found.get(identity(t.schema_name, t.table_name), TableSize())) for t in tables)
        case = tuple(of_other_case(self._connection, spec.tables, spec.options, tables))
        findings = (*preflight.check(facts), *signal_table.findings(self._connection, spec.source))
        return Examination(findings=findings, tables=tuple(described), of_other_case=case)

    def check(self, origin: Origin, point: Callable[[], ResumePoint], renewing: bool) -> None:
        self.admit(origin, point(), renewing)

    def check_free(self, noted: Origin | None) -> None:
        """Nothing is created in the source that another client could have."""

    def retained_bytes(self, origin: Origin) -> None:
        """The server expires its log by itself, whether or not it was read."""

    def remove(self, proof: Callable[[], RemovalProof]) -> Iterator[RemovalStep]:
        return iter(())

    def _require_fit(self) -> Facts:
        spec = self._replicator.spec
        tables = discover(self._connection, spec.read_tables, spec.read_options)
        facts = observe(self._connection, tables)
        findings = (*preflight.check(facts), *signal_table.findings(self._connection, spec.source))
        for finding in findings:
            if finding.level == "warn" or finding.name == "tables":
                fix = f". Fix: {finding.fix}" if finding.fix else ""
                log.log(logging.INFO if finding.level == "ok" else logging.WARNING, "%s%s", finding.message, fix)
        for text in patterns.idle(spec.tables, spec.options, [(t.schema_name, t.table_name) for t in tables]):
            log.warning(
                "%s; ignore this if the tables will be created later; without a right on them, they are not seen", text
            )
        refuse(f for f in findings if f.name != "tables")
        return facts
