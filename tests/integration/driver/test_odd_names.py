"""Tables and locations with odd names: copied into both formats, read by other readers, and dropped without a trace."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from psycopg import sql

from demo.compare import READERS, compare_by
from support.postgres import PostgresServer
from support.proof.on_s3 import OnS3
from support.proof.process import Deployment
from support.s3 import S3Server
from support.versions import turns
from tailrace.storage.path_names import encode

ODD = ["100%", "%41", "a\\b", "tab\tbed", 'quo"ted', "it's", "..", ".", "dots..", ".hidden", "a/b", "ex!21", "größe 大"]
ODD += ["#hash?", "[x]{y}*", "_delta_log", "a=b", "Plain"]
LOCATION = "Läke 100% (of it)+a=b"


@pytest.fixture
def source(postgres: PostgresServer) -> PostgresServer:
    with postgres.connect() as connection:
        for schema, tables in (("odd", ODD), ("sch%ma/..", ["t"])):
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
            for table in tables:
                name = sql.Identifier(schema, table)
                connection.execute(sql.SQL("CREATE TABLE {} (id int PRIMARY KEY, v text)").format(name))
                connection.execute(sql.SQL("INSERT INTO {} VALUES (1, 'one'), (2, 'two')").format(name))
    return postgres


def _differences(source: PostgresServer, read: Callable[[str, str], pa.Table]) -> list[str]:
    with source.connect() as connection:
        return compare_by(connection, [f"odd.{table}" for table in ODD], lambda s, t: read(encode(s), encode(t)))


def _copy(source: PostgresServer, deployment: Deployment, read: Callable[[str, str], pa.Table]) -> None:
    deployment.once()
    assert _differences(source, read) == []
    assert read(encode("sch%ma/.."), "t").num_rows == 2
    done = deployment.command("drop", "--data", "-f", str(deployment.manifest), "--run-dir", str(deployment.state))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("place", turns("folder, delta", "bucket", "folder, iceberg"))
def test_odd_names_in_an_odd_place(source: PostgresServer, tmp_path: Path, s3: S3Server, place: str) -> None:
    if place == "bucket":
        in_a_bucket(source, tmp_path, s3)
    else:
        in_a_folder(source, tmp_path, place.rpartition(" ")[2])


def in_a_folder(source: PostgresServer, tmp_path: Path, format: str) -> None:
    lake, log = tmp_path / LOCATION / "lake", tmp_path / LOCATION / "log"
    spec: dict[str, Any] = {
        "tables": {"include": ["*.*"]},
        "target": {"type": format, "location": lake.as_uri()},
        "storage": {"location": log.as_uri()},
    }
    _copy(source, Deployment(tmp_path / "d", source.source(), format, spec), lambda s, t: READERS[format](lake / s / t))
    assert not [*lake.rglob("*"), *log.rglob("*")]


def in_a_bucket(source: PostgresServer, tmp_path: Path, s3: S3Server) -> None:
    on_s3 = OnS3(s3, tmp_path / "keys")
    on_s3.write_keys()
    spec: dict[str, Any] = {
        "tables": {"include": ["*.*"]},
        "target": {"type": "delta", **on_s3.place(f"{LOCATION}/lake")},
        "storage": on_s3.place(f"{LOCATION}/log"),
    }
    # delta-rs reads an S3 location as a URL.
    _copy(source, Deployment(tmp_path / "d", source.source(), "delta", spec), on_s3.delta_below(f"{LOCATION}/lake"))
    assert not [path for path in on_s3.folder.rglob("*") if path.is_file()]
