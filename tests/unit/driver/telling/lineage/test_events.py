"""Events by the schemas that OpenLineage publishes, and what they say of columns."""

import json
from typing import Any

from openlineage.client.serde import Serde

from support import lineage
from support.resources import replicator
from tailrace.batch.written import WrittenFiles
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.contract.manifest import parse
from tailrace.contract.resources import Replicator
from tailrace.contract.status import Fault
from tailrace.driver.telling.lineage.events import LineageEvents, LineageOrigin, owners_in
from tailrace.driver.telling.lineage.runs import JobRun, Saying, SeenTable

PARENT, RUN = "3b452093-782c-4ef2-9c0c-aafe2aa6f34d", "3b452093-782c-4ef2-9c0c-aafe2aa6f34e"
OPTIONS = [{"match": "public.people", "as": {"balance": "text"}, "mask": [{"column": "email", "method": "Redact"}]}]


def column(number: int, name: str, type: str = "string", source_type: str = "text", **more: Any) -> Column:
    return Column(name=name, id=number, source_type=source_type, type=type, **more)


SOURCE = TableSchema(
    table_id=7,
    schema_name="public",
    table_name="people",
    version=2,
    columns=(
        column(1, "id", "int64", "bigint", nullable=False, key=0),
        column(2, "email", mask="Redact"),
        column(3, "balance", "string", "numeric"),
        column(4, "_change_type"),
        column(5, "region"),
    ),
    where="region = 'eu'",
)
TARGET = SOURCE.model_copy(
    update={"columns": (*SOURCE.columns[:3], SOURCE.columns[3].model_copy(update={"name": "_change_type_1"}))}
)


def of(**spec: Any) -> Replicator:
    return parse(json.dumps(replicator(**{"options": OPTIONS} | spec)), "m").replicator()


def events(owners: Any = (), once: bool = False, **spec: Any) -> LineageEvents:
    return LineageEvents(LineageOrigin("prod", "shop", of(**spec).spec, owners, once), PARENT)


def said(event: Any) -> lineage.Json:
    document: lineage.Json = json.loads(Serde.to_json(event))
    lineage.check(document)
    return document


def saying(kind: Any = "RUNNING", **more: Any) -> Saying:
    table = SeenTable(7, ("public", "customers"), SOURCE, TARGET, 1, version=12)
    told = {"written": WrittenFiles(3, 4096)} | more
    return Saying(kind, JobRun(RUN, table.place), table, 42, 1_790_000_000.5, **told)


def test_an_event_names_tables_job_and_parent() -> None:
    event = said(events().of_table(saying()))
    assert event["eventTime"] == "2026-09-21T14:13:20.500+00:00"
    assert (event["job"]["namespace"], event["job"]["name"]) == ("prod", "shop.public.customers")
    assert event["run"]["runId"] == RUN and event["run"]["facets"]["parent"]["run"]["runId"] == PARENT
    ((one,), (other,)) = event["inputs"], event["outputs"]
    assert (one["namespace"], one["name"]) == ("postgres://db:5432", "shop.public.people")
    assert (other["namespace"], other["name"]) == ("s3://lake", "shop/public/customers")
    assert one["facets"]["dataSource"]["uri"] == "postgres://db:5432/shop"
    assert other["facets"]["version"]["datasetVersion"] == "12"
    assert other["facets"]["storage"]["storageLayer"] == "delta" and "symlinks" not in other["facets"]
    statistics = other["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"], statistics["size"]) == (42, 3, 4096)
    types = {field["name"]: field["type"] for field in one["facets"]["schema"]["fields"]}
    assert types["id"] == "bigint" and types["balance"] == "numeric"
    assert event["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


def test_columns_tell_copied_masked_converted_and_renamed_ones_apart_and_those_that_filter() -> None:
    output = said(events().of_table(saying()))["outputs"][0]
    fields = output["facets"]["columnLineage"]["fields"]
    assert set(fields) == {"id", "email", "balance", "_change_type_1"}

    def how(name: str) -> tuple[Any, ...]:
        (field,) = fields[name]["inputFields"]
        (found,) = field["transformations"]
        assert (field["namespace"], field["name"]) == ("postgres://db:5432", "shop.public.people")
        return field["field"], found["type"], found["subtype"], found["masking"], found["description"]

    assert how("id") == ("id", "DIRECT", "IDENTITY", False, "")
    assert how("email") == ("email", "DIRECT", "TRANSFORMATION", True, "masked: Redact")
    assert how("balance") == ("balance", "DIRECT", "TRANSFORMATION", False, "as text")
    assert how("_change_type_1") == ("_change_type", "DIRECT", "IDENTITY", False, "renamed from _change_type")
    (filtering,) = output["facets"]["columnLineage"]["dataset"]
    assert filtering["field"] == "region" and "eu" not in json.dumps(filtering)
    assert filtering["transformations"][0]["subtype"] == "FILTER"


def test_faults_changes_and_owners_are_told() -> None:
    owners = owners_in(
        {"tailrace.dev/owner": "team-a", "tailrace.dev/owner.steward": "ann", "tailrace.dev/ownership": "x", "app": "y"}
    )
    assert owners == [("team-a", None), ("ann", "STEWARD")]
    fault = Fault(name="NoKey", message="no key", fix="Add one.")
    event = said(events(owners).of_table(saying("FAIL", fault=fault, change="OVERWRITE")))
    assert event["run"]["facets"]["errorMessage"]["message"] == "NoKey: no key. Fix: Add one."
    assert event["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"
    for facets in (event["job"]["facets"], event["outputs"][0]["facets"]):
        assert facets["ownership"]["owners"] == [{"name": "team-a"}, {"name": "ann", "type": "STEWARD"}]


def test_a_start_has_no_statistics_and_a_short_run_is_a_batch() -> None:
    event = said(events(once=True).of_table(saying("START")))
    assert "outputStatistics" not in event["outputs"][0].get("outputFacets", {})
    assert event["job"]["facets"]["jobType"]["processingType"] == "BATCH"


def test_the_replicators_own_run_has_no_tables_and_neither_has_one_that_was_killed() -> None:
    event = said(events().of_replicator("FAIL", 1.0, Fault(name="SourceRefused", message="no")))
    assert (event["job"]["name"], event["run"]["runId"], event["inputs"], event["outputs"]) == ("shop", PARENT, [], [])
    event = said(events().aborted(RUN, "shop.public.customers", 1.0))
    assert (event["eventType"], event["run"]["runId"]) == ("ABORT", RUN)


def test_other_targets_are_named_by_their_rules() -> None:
    catalog = {"type": "rest", "uri": "https://catalog"}
    iceberg = events(target={"type": "iceberg", "location": "s3://lake/shop", "catalog": catalog})
    output = said(iceberg.of_table(saying()))["outputs"][0]
    assert output["facets"]["symlinks"]["identifiers"] == [
        {"namespace": "https://catalog", "name": "public.customers", "type": "TABLE"}
    ]
    database = events(target={"type": "postgresql", "host": "dw", "database": "copy", "username": "u"})
    output = said(database.of_table(saying(written=None)))["outputs"][0]
    assert output["outputFacets"]["outputStatistics"].keys().isdisjoint({"fileCount", "size"})
    assert (output["namespace"], output["name"]) == ("postgres://dw:5432", "copy.public.customers")
    assert "storage" not in output["facets"]
