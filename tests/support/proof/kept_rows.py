"""The versions that a copy of `support.proof.committed` has."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from support.database_copies import place_of
from support.mysql import MysqlServer
from support.proof.committed import Version
from support.proof.process import Deployment
from support.proof.sums import Copies

COLUMNS = "id, v, big, _valid_from, _valid_to, _is_current"


def versions_of(copies: Copies, folder: Path) -> Path:
    """The manifest of a Replicator that keeps all versions in a database."""
    spec: dict[str, object] = {"target": place_of(copies.server), "options": [{"match": "*.*", "history": "Versions"}]}
    deployment = Deployment(folder / "proof", copies.source.source(), "delta", spec)
    deployment.write_manifest()
    return deployment.manifest


def kept_in(copies: Copies) -> list[Version]:
    """Those of a database."""
    if isinstance(copies.server, MysqlServer):
        return of_rows(copies.server.execute(f"SELECT {COLUMNS} FROM proof.kept"))
    return of_rows(copies.server.execute(f"SELECT {COLUMNS} FROM proof.kept", dbname="copy"))


def of_rows(rows: Iterable[tuple[int, int | None, str | None, datetime, datetime | None, object]]) -> list[Version]:
    found = list(rows)
    assert all(bool(current) == (ended is None) for *_, ended, current in found)
    return [(id_, v, big, _utc(begun), None if to is None else _utc(to)) for id_, v, big, begun, to, _ in found]


def _utc(moment: datetime) -> datetime:
    """MySQL's are in UTC and do not say so."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
