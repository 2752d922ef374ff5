"""Copies in a PostgreSQL database, made by all of Tailrace in one process."""

from pathlib import Path
from typing import Any, cast

from support.pipeline import Pipeline, lake
from support.postgres import PostgresServer
from support.resources import replicator as document_of
from tailrace import sources
from tailrace.contract.resources import Replicator


def begin(source: dict[str, object], server: PostgresServer, folder: Path, username: str = "postgres") -> Pipeline:
    place = {"type": "postgresql", "host": server.host, "port": server.port, "username": username}
    document = document_of(
        "copies",
        source=source,
        storage={"location": (folder / "log").as_uri()},
        tables={"include": ["shop.*"]},
        target={**place, "database": "copy"},
    )
    replicator = Replicator.model_validate(document)
    tables = lake(replicator, cast(Any, None))
    return Pipeline(document, sources.open(replicator.spec.source, "test"), folder, tables)


def settle(copy: Pipeline) -> None:
    with copy.source.session() as session:
        end = session.log_end()
    copy.settle(end)
    assert not copy.driver.faults()
