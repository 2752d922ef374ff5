"""The report on a verification: what each table's comparison found, and how far repairs are. Pure."""

from tailrace.changelog.records.snapshots import ComparisonResult
from tailrace.changelog.state import LogState, SnapshotState
from tailrace.contract.driver import DifferingRow, TableReport, VerificationReport
from tailrace.driver.telling.status import compared_rows, snapshot_failed, snapshot_state
from tailrace.errors import privacy
from tailrace.snapshot.planner import repair_prefix


def report(state: LogState, snapshot: SnapshotState) -> VerificationReport:
    plan = snapshot.plan
    prefix = repair_prefix(plan.snapshot_id)
    repairs = [other for id_, other in state.snapshots.items() if id_.startswith(prefix)]
    return VerificationReport(
        id=plan.snapshot_id,
        state=snapshot_state(snapshot),
        sample=plan.sample,
        tables=tuple(_table(state, snapshot, table_id) for table_id in plan.tables),
        repairs=len(repairs),
        repairs_left=sum(other.ended is None for other in repairs),
    )


def _table(state: LogState, snapshot: SnapshotState, table_id: int) -> TableReport:
    part, log = snapshot.tables[table_id], state.tables.get(table_id)
    found, error = part.found or ComparisonResult(), None if part.finished is None else part.finished.error
    return TableReport(
        name=str(table_id) if log is None else log.schema.name,
        finished=part.finished is not None,
        compared=compared_rows(found),
        differences=tuple(
            DifferingRow(kind=each.kind, key=privacy.key(each.key), columns=each.columns) for each in found.examples
        ),
        fault=None if error is None else snapshot_failed(error),
    )
