"""`tailrace diff`: fields and tables, for people and programs, and where the old manifest comes from."""

import json
from pathlib import Path
from typing import Any, cast

import pytest

from support.resources import replicator
from tailrace.changelog.records.terms import Column, TableSchema
from tailrace.cli import main
from tailrace.cli.difference import FieldChange, SpecDifference, TableChange, table_changes, unconfirmed
from tailrace.contract.manifest import parse
from tailrace.contract.resources import Replicator, ReplicatorSpec, TablesSpec
from tailrace.driver.asking import live_spec
from tailrace.errors import ReadRefused, TableStop
from tailrace.sources.api import Table
from tailrace.sources.postgresql.log.differences import first_stop
from tailrace.sources.postgresql.model import CatalogColumn, PgTable
from tailrace.sources.postgresql.source import PgSession


def resource(**spec: Any) -> Replicator:
    return parse(json.dumps(replicator(**spec)), "m").replicator()


def written(folder: Path, name: str, **spec: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(replicator(**spec)))
    return str(path)


def diff(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main.main(["diff", *arguments]) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def test_each_field_has_its_effect_and_the_last_line_says_what_it_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = written(tmp_path, "old.yaml")
    live = written(tmp_path, "live.yaml", apply={"freshness": "2s"}, deletionPolicy="Orphan")
    assert diff(capsys, "-f", live, "--old", old).splitlines() == [
        "deletionPolicy   takes effect without the driver",
        "apply.freshness  takes effect in the running driver",
        "no restart needed: `tailrace reload -f <manifest>`; in Kubernetes `kubectl apply`",
    ]
    restart = written(tmp_path, "restart.yaml", apply={"freshness": "2s"}, restartNonce=3)
    told = diff(capsys, "-f", restart, "--old", old).splitlines()
    assert told[0].split("  ")[0] == "restartNonce" and told[0].endswith("restarts the driver")
    assert told[-1].startswith("the driver restarts")
    source = {**replicator()["spec"]["source"], "postgresql": {"slot": "mine"}}
    document = json.loads(diff(capsys, "-f", written(tmp_path, "no.yaml", source=source), "--old", old, "--json"))
    assert document["needed"] == "refused" and document["tables"] == []
    (field,) = document["fields"]
    assert (field["field"], field["effect"]) == ("source.postgresql.slot", "refused")
    assert field["reason"].startswith("source.postgresql.slot is immutable")
    assert diff(capsys, "-f", old, "--old", old) == "nothing changes\n"


def test_the_old_manifest_is_the_one_that_the_driver_works_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = written(tmp_path, "new.yaml", apply={"freshness": "2s"})
    asked = "-f", new, "--run-dir", str(tmp_path)
    assert "--old FILE" in diff(capsys, *asked, code=2)
    live_spec.keep(tmp_path, resource())
    assert diff(capsys, *asked).startswith("apply.freshness")
    live_spec.keep(tmp_path, resource(apply={"freshness": "2s"}))
    assert diff(capsys, *asked) == "nothing changes\n"


def column(name: str, id: int, type: str = "int32", key: int | None = None) -> Column:
    return Column(name=name, id=id, source_type="integer", type=type, nullable=True, key=key)


def table(name: str, *columns: Column, stop: TableStop | None = None) -> PgTable:
    schema = TableSchema(
        table_id=1, schema_name="s", table_name=name, version=0, columns=(column("id", 1, key=0), *columns)
    )
    none: tuple[CatalogColumn, ...] = ()
    return PgTable(1, "s", name, False, "me", (), none, schema, stop)


def changes(spec: ReplicatorSpec, was: PgTable | None, now: PgTable | None) -> list[TableChange]:
    """As a session of PostgreSQL judges them: this question takes no connection."""
    session = PgSession(cast(Any, None))
    before: dict[str, Table] = {was.name: was} if was else {}
    return list(table_changes(session, spec, before, {now.name: now} if now else {}))


KEYLESS = ReadRefused("s.t", "s.t is unlogged", "Log it.")


@pytest.mark.parametrize(
    ("was", "now", "effect", "part"),
    [
        (None, table("t"), "captured", "all rows are read"),
        (table("t", stop=KEYLESS), table("t"), "captured", "all rows are read"),
        (table("t"), None, "released", "copy stays"),
        (table("t"), table("t", column("v", 2)), "readAgain", "columns v"),
        (table("t", column("v", 2)), table("t"), "stops", "'v'"),
        (table("t", column("v", 2)), table("t", column("v", 2, "string")), "stops", "copied as string"),
        (table("t"), table("t", stop=KEYLESS), "stops", "unlogged"),
        (None, table("t", stop=KEYLESS), "stops", "cannot be captured"),
    ],
)
def test_a_table_is_named_with_what_becomes_of_it(
    was: PgTable | None, now: PgTable | None, effect: str, part: str
) -> None:
    (found,) = changes(resource(onSchemaChange="EvolveAdditive").spec, was, now)
    assert (found.table, found.effect) == ("s.t", effect) and part in found.reason
    assert bool(found.fix) == (effect == "stops")


def test_a_change_that_drops_most_tables_is_refused_until_it_is_confirmed() -> None:
    before, unmatched = [table("t"), table("u")], TablesSpec(include=("other.*",))
    found = SpecDifference((FieldChange("tables.include", "live"),), (), unconfirmed(unmatched, before))
    assert found.needed == "refused" and found.unconfirmed is not None
    *_, refusal, fix, last = found.lines()
    assert refusal.startswith("RemovalUnconfirmed: ") and "s.t, s.u" in refusal
    assert last == "this Replicator cannot be changed in this way"
    assert found.document()["refusal"]["error"] == "RemovalUnconfirmed"
    confirmed = unmatched.model_copy(update={"confirm_removal": fix.split("'")[1]})
    assert unconfirmed(confirmed, before) is None


def test_what_stays_as_it_is_is_not_named() -> None:
    assert changes(resource().spec, table("t"), table("t")) == []
    assert changes(resource().spec, table("t", stop=KEYLESS), table("t", stop=KEYLESS)) == []
    assert changes(resource().spec, table("t", stop=KEYLESS), None) == []


def test_the_manifest_says_whether_a_changed_table_starts_over_and_whether_new_ones_are_read() -> None:
    was, now = table("t", column("v", 2)), table("t", column("v", 2, "string"))
    assert first_stop(was.schema, now.schema) is not None
    (found,) = changes(resource(onSchemaChange="Evolve").spec, was, now)
    assert (found.effect, found.fix) == ("startsOver", "") and "into a new copy" in found.reason
    masked = column("v", 2).model_copy(update={"mask": "Redact"})
    for hidden in (table("t", masked), table("t")):
        (found,) = changes(resource(onSchemaChange="Evolve").spec, was, hidden)
        assert found.effect == "startsOver" and "emptied at once" in found.reason
    (found,) = changes(resource(snapshot={"initial": False}).spec, None, now)
    assert found.effect == "captured" and found.reason.endswith(
        "not read (snapshot.initial), unless it was captured before"
    )
