"""A fenced driver changes no target table: the look at the epoch stands right before each commit, in both formats."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from support.iceberg import LOG, Orders
from support.lake import new_location, table_schema
from tailrace.batch.applied import AppliedState
from tailrace.contract.resources import StorageLocation
from tailrace.errors import Fenced
from tailrace.storage.store import Storage
from tailrace.targets.lake.delta.table import DeltaTable
from tailrace.targets.lake.files.layout import Layout
from tailrace.targets.lake.files.write import write_files
from tailrace.targets.lake.iceberg.table import IcebergTable
from tailrace.targets.lake.model import TableCommit

# PySpark leaves the sockets of collect() to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
SCHEMA = table_schema([("id", "int64"), ("name", "string")], ["id"])
WIDER = table_schema([("id", "int64"), ("name", "string"), ("more", "string")], ["id"], version=2)


class Owner:
    """Who may commit, until it is fenced."""

    def __init__(self) -> None:
        self.fenced = False
        self.asked = 0

    def admit(self) -> None:
        self.asked += 1
        if self.fenced:
            raise Fenced("another driver")


def _changes(state: AppliedState, compact: TableCommit) -> list[TableCommit]:
    """A batch, a change of the schema, a TRUNCATE and a compaction."""
    return [
        TableCommit(state),
        TableCommit(state, evolve=WIDER),
        TableCommit(state, clear=True),
        compact,
    ]


def _refuses(act: Callable[[], object], owner: Owner) -> None:
    asked = owner.asked
    with pytest.raises(Fenced):
        act()
    assert owner.asked == asked + 1


def test_a_fenced_driver_commits_nothing_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    storage, owner = Storage.open(StorageLocation(location=tmp_path.as_uri())), Owner()
    location = new_location(tmp_path)
    log = Path(location.removeprefix("file://")) / "_delta_log"
    owner.fenced = True
    table = DeltaTable(lambda: spark, storage, location, admit=owner.admit)
    _refuses(lambda: table.ensure(SCHEMA, LOG), owner)
    assert not list(log.glob("*.json"))
    owner.fenced = False
    state = table.ensure(SCHEMA, LOG)
    layout = Layout(SCHEMA, table.arrow_schema(SCHEMA))
    rows = pa.table({"id": [1], "name": ["a"]})
    (written,) = write_files(storage, location, layout, [rows])
    table.commit(TableCommit(state, [written.file]))
    owner.fenced = True
    compact = TableCommit(state, [written.file], data_change=False, remove=[written.file.path])
    for change in _changes(state, compact):
        table.refresh()
        _refuses(lambda change=change: table.commit(change), owner)  # type: ignore[misc]  # a default binds the loop's value
    table.refresh()
    _refuses(lambda: table.sweep(2e9), owner)
    assert sorted(path.name for path in log.glob("*.json")) == [f"{number:020d}.json" for number in range(2)]


def test_a_fenced_driver_commits_nothing_to_iceberg(spark: SparkSession) -> None:
    orders, owner = Orders(spark), Owner()
    for key in range(3):
        orders.apply({key: (None, "a")})
    owner.fenced = True
    other = IcebergTable(orders.catalog, orders.access, orders.namespace, "another", admit=owner.admit)
    _refuses(lambda: other.ensure(orders.schema, LOG), owner)
    table = IcebergTable(orders.catalog, orders.access, orders.namespace, "orders", admit=owner.admit)
    state = table.ensure(orders.schema, LOG)
    before = orders.table.refresh(), len(orders.read())
    (file, *_) = table.files()
    wider = TableCommit(state, evolve=orders.schema.model_copy(update={"version": 2}))
    compact = TableCommit(state, data_change=False, remove=[file.path])
    for change in [TableCommit(state), wider, TableCommit(state, clear=True), compact]:
        table.refresh()
        _refuses(lambda change=change: table.commit(change), owner)  # type: ignore[misc]  # a default binds the loop's value
    table.refresh()
    _refuses(lambda: table.expire(2e9, at_once=1), owner)
    _refuses(lambda: table.sweep(2e9), owner)
    assert (orders.table.refresh(), len(orders.read())) == before
