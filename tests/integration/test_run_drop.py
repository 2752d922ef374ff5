"""`tailrace drop` on a real server: what Tailrace made goes, what was given stays, and it can be run again."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from support.journals import Journal, table_schema
from support.pg_source import config_of
from support.postgres import PostgresServer
from tailrace.capture import slots
from tailrace.changelog.paths import record_path
from tailrace.changelog.records import Applied, TableAdded
from tailrace.contract.resources import Storage as StorageConfig
from tailrace.run.cli import main
from tailrace.sources.postgresql.connect import connect
from tailrace.storage import Storage


def manifest(folder: Path, server: PostgresServer, **source: str) -> Path:
    spec: dict[str, Any] = {
        "source": {
            "type": "postgresql",
            "host": server.host,
            "port": server.port,
            "database": "postgres",
            "username": "postgres",
            **source,
        },
        "tables": {"include": ["public.*"]},
        "target": {"type": "delta", "location": f"file://{folder}/lake"},
        "storage": {"location": f"file://{folder}/log"},
    }
    document = {"apiVersion": "tailrace.dev/v1alpha1", "kind": "Replicator", "metadata": {"name": "web-shop"}}
    path = folder / "replicator.yaml"
    path.write_text(json.dumps({**document, "spec": spec}))
    return path


def drop(path: Path, *more: str) -> int:
    return main(["drop", "-f", str(path), "--run-dir", str(path.parent / "run"), *more])


def test_the_slot_and_publication_that_tailrace_made_are_dropped_and_again_is_no_error(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, postgres)
    with connect(config_of(postgres)) as admin:
        slots.create_slot(config_of(postgres), "tailrace_web_shop")
        admin.execute("CREATE PUBLICATION tailrace_web_shop")
        slots.create_slot(config_of(postgres), "of_somebody_else")
        assert drop(path) == 0
        assert slots.find_slot(admin, "tailrace_web_shop") is None
        assert admin.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
        assert slots.find_slot(admin, "of_somebody_else") is not None
        assert "slot tailrace_web_shop: dropped" in capsys.readouterr().out
        assert drop(path) == 0
        assert "slot tailrace_web_shop: there is none" in capsys.readouterr().out


def test_a_slot_and_a_publication_that_were_given_are_kept(postgres: PostgresServer, tmp_path: Path) -> None:
    path = manifest(tmp_path, postgres, slot="given", publication="given")
    with connect(config_of(postgres)) as admin:
        slots.create_slot(config_of(postgres), "given")
        admin.execute("CREATE PUBLICATION given")
        assert drop(path) == 0
        assert slots.find_slot(admin, "given") is not None
        assert admin.execute("SELECT count(*) FROM pg_publication").fetchone() == (1,)


def test_a_source_that_refuses_the_password_is_told_by_its_exit_code(
    postgres: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, postgres)
    path.write_text(path.read_text().replace('"username": "postgres"', '"username": "nobody"'))
    assert drop(path) == 11
    assert "AuthenticationFailed" in capsys.readouterr().err


def _journal(folder: Path) -> None:
    """A change log that knows t1 and t2, and that t1 was applied; what is at t2's place is somebody else's."""
    journal = Journal(Random(0))
    storage = Storage.open(StorageConfig(location=f"file://{folder}"))
    records = [journal.origin()]
    records.append(journal.plain(events=tuple(TableAdded(table=table_schema(i), edge_xid=5) for i in (1, 2))))
    records.append(journal.plain(events=(Applied(table_id=1, applied_seq=0, applied_record=1),)))
    for record in records:
        storage.create(record_path(record.number), record.model_dump_json().encode())


@pytest.mark.parametrize("storage", ["log", "lake/_log"])
def test_with_data_the_applied_tables_and_the_change_log_go_and_nothing_else(
    postgres: PostgresServer, tmp_path: Path, storage: str
) -> None:
    path = manifest(tmp_path, postgres)
    path.write_text(path.read_text().replace(f"{tmp_path}/log", f"{tmp_path}/{storage}"))
    _journal(tmp_path / storage)
    for table in ("t1", "t2"):
        folder = tmp_path / "lake" / "public" / table
        folder.mkdir(parents=True)
        (folder / "part.parquet").write_bytes(b"x")
    assert drop(path) == 0
    assert (tmp_path / "lake" / "public" / "t1" / "part.parquet").exists(), "deletionPolicy Retain keeps the data"
    assert drop(path, "--data") == 0
    assert not list((tmp_path / "lake" / "public" / "t1").rglob("*.parquet"))
    assert (tmp_path / "lake" / "public" / "t2" / "part.parquet").exists()
    assert not [p for p in (tmp_path / storage).rglob("*") if p.is_file()]
    assert drop(path, "--data") == 0
