"""What a session asks of the service, for which a script stands."""

import json
from typing import Any

import pyarrow as pa
import pytest

from support.lake import table_schema
from tailrace.changelog.records.terms import TableSchema
from tailrace.errors import Retry, SchemaChangeUnsupported, TargetRefused
from tailrace.targets.bigquery.rest import CHANGED, BigQueryConfig, ServiceMessage
from tailrace.targets.bigquery.session import BigQuerySession
from tailrace.targets.bigquery.tables import CopyTable
from tailrace.targets.sql.described import mark
from tailrace.targets.sql.session import Alteration, AlteredColumn, UnfitColumn

COPY = CopyTable.of_definitions(77, f"`id` INT64 NOT NULL{mark(1)}, `a` STRING{mark(2)}, PRIMARY KEY (`id`)")
ADDED, NEXT = (Alteration([], [], [f"`{name}` DATE{mark(id_)}"]) for name, id_ in (("b", 3), ("c", 4)))
RETYPED = Alteration([], [AlteredColumn("`a`", "`a`", "INT64", f"`a` INT64{mark(2)}")], [])
TAGGED = {"policyTags": {"names": ["projects/p/locations/eu/taxonomies/1/policyTags/2"]}}


class Warehouse:
    """What the service says: a table `t` that is the copy, with these policies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, policies: tuple[str, ...] = (), **column: object) -> None:
        self.session = BigQuerySession(BigQueryConfig("p", "d", "EU", "http://127.0.0.1:9", None))
        self.sent = list[str]()
        """Scripts that change something."""
        self.said = ""
        """The words by which the next ones are refused; empty: they are not."""
        self._policies = [{"rowAccessPolicyReference": {"policyId": name}} for name in policies]
        fields = [{"name": "id", "type": "INTEGER"}, {"name": "a", "type": "STRING", **column}]
        self._table = {"description": COPY.description, "schema": {"fields": fields}}
        client = self.session._client
        monkeypatch.setattr(client, "call", self.call)
        monkeypatch.setattr(client, "change", self.change)
        monkeypatch.setattr(client, "settle", lambda job_id: None)
        monkeypatch.setattr(self.session, "rows", lambda *asked: [('{"format":3}',)])

    def call(self, method: str, path: str, **_: object) -> dict[str, Any]:
        if path.endswith("/rowAccessPolicies"):
            return {"rowAccessPolicies": self._policies}
        assert (method, path.partition("/tables/")[2]) in {("GET", "t"), ("GET", "u")}
        return self._table

    def change(self, statement: str, parameters: object = (), job_id: str | None = None) -> dict[str, Any]:
        self.sent.append(statement)
        if self.said and "ALTER TABLE" in statement:
            raise self.session._client._fault("invalidQuery", self.said) from ServiceMessage(self.said)
        return {}

    def alter(self, change: Alteration) -> None:
        self.session.alter(("d", "t"), change, lambda: None)

    def rewrites(self) -> bool:
        return any("CREATE OR REPLACE" in statement for statement in self.sent)


@pytest.mark.parametrize(
    ("policies", "column", "why"),
    [
        (("eu", "us"), {}, r"d\.t has row access policies \(eu, us\), and has to be"),
        ((), TAGGED, r"d\.t has policies of columns \(a\)"),
        ((), {"dataPolicies": [{"name": "hides"}]}, r"policies of columns \(a\)"),
        (("eu",), TAGGED, r"row access policies \(eu\) and policies of columns \(a\)"),
    ],
)
def test_a_table_with_policies_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch, policies: tuple[str, ...], column: dict[str, object], why: str
) -> None:
    """They would be dropped, and rows that they hide from Tailrace would be lost."""
    there = Warehouse(monkeypatch, policies, **column)
    with pytest.raises(TargetRefused, match=why) as refused:
        there.alter(RETYPED)
    assert "drop the policies" in refused.value.fix
    with pytest.raises(TargetRefused, match=why):
        there.session.replace(("d", "t"), ("d", "u"), lambda: None)
    assert there.sent == []
    there.alter(ADDED)
    assert not there.rewrites(), "which reads no row"


def test_a_change_that_policies_prevent_names_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Warehouse(monkeypatch, ("eu",))
    there.said = "ALTER TABLE RENAME COLUMN is not supported for tables with row access policies at [6:1]"
    for _ in range(2):
        with pytest.raises(TargetRefused, match=r"row access policies \(eu\)"):
            there.alter(ADDED)
    bare = Warehouse(monkeypatch)
    bare.alter(ADDED)
    assert bare.sent and not bare.rewrites(), "it is tried in place again, once they are dropped"


CANNOT = "ALTER TABLE ADD COLUMN is not supported for such a table at [6:1]"
PASSING = (
    CHANGED,
    "Transaction is aborted due to concurrent update against table p:d_tailrace.tables. at [2:1]",
    "Query error: Exceeded rate limits: too many table update operations for this table. at [7:1]",
    "Job exceeded rate limits: Your table exceeded quota for table update operations. at [7:1]",
    "Quota exceeded: Your table exceeded quota for Number of table update operations",
)


@pytest.mark.parametrize("said", PASSING)
def test_a_fault_that_passes_is_no_reason_to_write_a_table_again(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    there = Warehouse(monkeypatch)
    there.said = said
    with pytest.raises(Retry):
        there.alter(ADDED)
    there.said = ""
    there.alter(ADDED)
    assert not there.rewrites()


def test_what_bigquery_has_refused_is_done_with_the_rows_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another change may come much later, to a table that was changed in the end."""
    there = Warehouse(monkeypatch)
    there.said = CANNOT
    with pytest.raises(Retry):
        there.alter(ADDED)
    there.said = ""
    there.alter(NEXT)
    assert not there.rewrites()
    there.alter(ADDED)
    assert there.rewrites()
    there.sent.clear()
    there.alter(ADDED)
    assert not there.rewrites(), "once"


def test_a_table_without_policies_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Warehouse(monkeypatch)
    there.alter(RETYPED)
    assert there.rewrites()


def test_a_right_that_is_missing_for_policies_is_told_and_what_was_tried_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session, asked = BigQuerySession(BigQueryConfig("p", "d", "EU", "http://127.0.0.1:9", None)), list[str]()
    refusing = True

    def call(method: str, path: str, **_: object) -> dict[str, Any]:
        asked.append(f"{method} {path.partition('_tailrace_examined_')[0]}")
        if refusing and path.endswith("/rowAccessPolicies"):
            raise session._client._fault("accessDenied", "Access Denied: bigquery.rowAccessPolicies.list denied", 403)
        return {}

    monkeypatch.setattr(session._client, "call", call)
    refused = session.hidden_policies()
    assert refused is not None and "rowAccessPolicies.list denied" in refused.message
    assert "BigQuery Data Owner on data set d" in refused.fix
    where = "datasets/d/tables"
    assert asked == ["GET datasets/d", f"POST {where}", f"GET {where}/", f"DELETE {where}/"]
    refusing = False
    assert session.hidden_policies() is None


LISTS = f"`tags` ARRAY<STRING>{mark(3)}"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Alteration([], [], [LISTS]), "'tags' is new and is to be ARRAY<STRING>"),
        (
            Alteration([], [AlteredColumn("`a`", "`a`", "ARRAY<STRING>", f"`a` ARRAY<STRING>{mark(2)}")], []),
            "'a' is STRING in the target and is to be ARRAY<STRING>",
        ),
    ],
)
def test_a_table_is_read_again_before_a_column_of_it_has_arrays(
    monkeypatch: pytest.MonkeyPatch, change: Alteration, why: str
) -> None:
    """The rows that are there would have empty ones, and the source has NULL."""
    there = Warehouse(monkeypatch)
    with pytest.raises(UnfitColumn) as refused:
        there.alter(change)
    stop = refused.value.of("shop.item")
    assert isinstance(stop, SchemaChangeUnsupported) and why in stop.message and "tailrace resync" in stop.fix
    assert there.sent == []


def list_schema(*types: str) -> TableSchema:
    return table_schema([("id", "int64"), *((f"c{n}", kind) for n, kind in enumerate(types))], ["id"])


@pytest.mark.parametrize(
    ("repeated", "field", "why"),
    [
        (True, {"type": "STRING"}, "'c0' is STRING in the target and is to be ARRAY<STRING>"),
        (False, {"type": "STRING", "mode": "REPEATED"}, "'c0' is ARRAY<STRING> in the target and is to be STRING"),
        (True, {"type": "STRING", "mode": "REPEATED"}, None),
        (False, {"type": "STRING"}, None),
    ],
)
def test_a_copy_whose_lists_have_another_type_by_now_is_not_continued(
    monkeypatch: pytest.MonkeyPatch, repeated: bool, field: dict[str, str], why: str | None
) -> None:
    """After a change of columns that was interrupted, the record still has a column that is gone: `c1`."""
    schema = list_schema("list<string>", "list<int64>", "string")
    told = {"tailrace": 7, "columns": {"c0": schema.columns[1].id}, "key": []}
    there: dict[str, Any] = {"description": json.dumps(told), "schema": {"fields": [{"name": "c0", **field}]}}
    session = BigQuerySession(BigQueryConfig("p", "d", "EU", "http://127.0.0.1:9", None, repeated=repeated))
    asked = list[str]()

    def call(method: str, path: str, **_: object) -> dict[str, Any]:
        asked.append(path)
        return there

    monkeypatch.setattr(session._client, "call", call)
    session.require_lists(("d", "t"), list_schema("string"))
    assert asked == [], "it has no lists"
    if why is None:
        session.require_lists(("d", "t"), schema)
    else:
        with pytest.raises(UnfitColumn) as refused:
            session.require_lists(("d", "t"), schema)
        assert why in refused.value.of(schema.name).message
    assert asked == ["datasets/d/tables/t"]


def test_rows_with_arrays_are_loaded_and_not_listed() -> None:
    session = BigQuerySession(BigQueryConfig("p", "d", "EU", "http://127.0.0.1:9", None, repeated=True))
    rows = pa.table({"tags": pa.array([["a"]], pa.list_(pa.string()))})
    assert session.listed([("`tags`", "STRING")], rows) is not None
    assert session.listed([("`tags`", "ARRAY<STRING>")], rows) is None


def test_a_table_of_a_batch_goes_by_itself_after_a_day_and_one_of_a_chunk_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[Any]()
    session = BigQuerySession(BigQueryConfig("p", "d", "EU", "http://127.0.0.1:9", None))

    def call(method: str, path: str, *, json: object) -> dict[str, object]:
        asked.append(json)
        return {}

    monkeypatch.setattr(session._client, "call", call)
    monkeypatch.setattr("time.time", lambda: 1_000.0)
    session.temporary("_tailrace_keys_0", "id bigint")
    session.unlogged("_tailrace.chunk_1", "id bigint")
    assert [one.get("expirationTime") for one in asked] == ["87400000", None]
    assert {one["tableReference"]["datasetId"] for one in asked} == {"d_tailrace"}


def test_a_table_that_is_to_take_its_own_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[object, ...]]()
    session = BigQuerySession(BigQueryConfig("p", "d", "EU", "http://127.0.0.1:9", None))

    def call(*request: object, **_: object) -> dict[str, object]:
        asked.append(request)
        return {}

    monkeypatch.setattr(session._client, "call", call)
    session.replace(("d", "t"), ("d", "t"), lambda: None)
    assert asked == []
    session.replace(("d", "t"), ("d", "u"), lambda: None)
    assert asked == [("GET", "datasets/d/tables/u")]
