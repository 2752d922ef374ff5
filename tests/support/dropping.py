"""What `tailrace drop` meets in its tests: a manifest, a change log that says what it made, and target tables."""

import json
from pathlib import Path
from random import Random
from typing import Any

from support.journals import Journal, table_schema
from tailrace.changelog.paths import record_path
from tailrace.changelog.records import Event, Origin
from tailrace.changelog.records.tables import Applied, TableAdded
from tailrace.changelog.records.terms import RecordNumber, Seq
from tailrace.cli.main import main
from tailrace.contract.resources import StorageSpec
from tailrace.storage.store import Storage

UID, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
OWNER = f"team/web-shop@{UID}"


def manifest(
    folder: Path, source: dict[str, Any], uid: str | None = UID, name: str = "web-shop", **change: Any
) -> Path:
    spec: dict[str, Any] = {
        "source": {"type": "postgresql", "database": "postgres", "username": "postgres", **source},
        "tables": {"include": ["public.*"]},
        "target": {"type": "delta", "location": f"file://{folder}/lake", **change.get("target", {})},
        "storage": {"location": f"file://{folder}/log", **change.get("storage", {})},
    }
    meta = {"name": name, "namespace": change.get("namespace", "team"), "uid": uid}
    document = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": meta, "spec": spec}
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{uid}.yaml"
    path.write_text(json.dumps(document))
    return path


def drop(path: Path, *more: str) -> int:
    return main(["drop", "-f", str(path), "--run-dir", str(path.parent / "run"), *more])


def release(path: Path, *more: str) -> int:
    return main(["release", "-f", str(path), "--run-dir", str(path.parent / "run"), *more])


def storage_of(folder: Path) -> Storage:
    return Storage.open(StorageSpec(location=f"file://{folder}"))


def journal(folder: Path, origin: Origin, *events: Event) -> None:
    """A change log of this origin."""
    entries = Journal(Random(0))
    first = entries.origin()
    records = [first.model_copy(update={"events": (origin,)})]
    records += [entries.plain(events=(event,)) for event in events]
    for record in records:
        storage_of(folder).create(record_path(record.number), record.model_dump_json().encode())


def applied_tables() -> tuple[Event, ...]:
    """t1 and t3 were applied, t2 was not, as far as the journal says."""
    added = tuple(TableAdded(table=table_schema(i), edge="5") for i in (1, 2, 3))
    return *added, *(Applied(table_id=i, applied_seq=Seq(0), applied_record=RecordNumber(1)) for i in (1, 3))


def delta_table(folder: Path, table: str, log_id: str | None) -> None:
    place = folder / "lake" / "public" / table
    (place / "_delta_log").mkdir(parents=True)
    (place / "part.parquet").write_bytes(b"x")
    if log_id is not None:
        domain = {"domain": "tailrace.applied", "configuration": json.dumps({"logId": log_id}), "removed": False}
        lines = [{"commitInfo": {}}, {"domainMetadata": domain}]
        commit = "\n".join(json.dumps(line) for line in lines)
        (place / "_delta_log" / f"{0:020d}.json").write_text(commit)


def files(folder: Path) -> set[Path]:
    return {p for p in folder.rglob("*") if p.is_file() and p.suffix in (".json", ".parquet")}
