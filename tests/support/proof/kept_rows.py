"""The versions that a copy of `support.proof.committed` has."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from support.database_copies import place_of
from support.mysql import MysqlServer
from support.proof.committed import KeptCommits, Values, Version
from support.proof.process import Deployment
from support.proof.sums import OutOfPostgres

COLUMNS = "id, v, big, _valid_from, _valid_to, _is_current"
OF_CHANGES = ("_seq", "_op", "_commit_time", "_unchanged", "id", "v", "big")
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""When the versions that a snapshot has read begin."""
OF_MARKED = ("id", "v", "big", "_is_deleted", "_deleted_at")
Change = tuple[int, str, datetime | None, str | None, int | None, int | None, str | None]
"""Values of `OF_CHANGES`."""


def versions_of(copies: OutOfPostgres, folder: Path) -> Path:
    """The manifest of a Replicator that keeps all versions in a database."""
    spec: dict[str, object] = {"target": place_of(copies.server), "options": [{"match": "*.*", "history": "Versions"}]}
    deployment = Deployment(folder / "proof", copies.source.source(), "delta", spec)
    deployment.write_manifest()
    return deployment.manifest


def kept_in(copies: OutOfPostgres) -> list[Version]:
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


def of_changes(changes: Sequence[Change]) -> list[Version]:
    """The versions that a copy with every change tells of; a change that is there twice is an error."""
    logged = [change for change in changes if change[1] != "r"]
    assert len({change[0] for change in logged}) == len(logged), "a change is there twice"
    there, found = dict[int, tuple[Values, datetime]](), list[Version]()
    # Of equal numbers the row that was read is the later one.
    for time, some in groupby(sorted(changes, key=lambda c: (c[0], c[1] == "r")), key=lambda c: c[2]):
        rows = {key: values for key, (values, _) in there.items()}
        touched = _changed(rows, some)
        at = LONG_AGO if time is None else _utc(time)
        for key in touched:
            if time is None and key in there and rows.get(key) == there[key][0]:
                continue  # it was read as it was
            if key in there:
                former, begun = there.pop(key)
                found += [(key, *former, begun, at)] if begun != at else []
            if key in rows:
                there[key] = rows[key], at
    return [*found, *((key, *values, begun, None) for key, (values, begun) in there.items())]


def differing_marks(
    found: Iterable[tuple[int, int | None, str | None, bool, datetime | None]],
    source: KeptCommits,
    whole: datetime,
) -> list[str]:
    """The rows that differ in a copy whose deleted rows stay: each key has the values of its last version, and is
    marked with the time at which that ended. What went before the first snapshot had ended may be missing; and a
    reading that no longer finds a row may come before its deletion, and does not know the time."""
    last = {version[0]: version for version in sorted(source.versions(), key=lambda version: version[3])}
    seen, different = set[int](), list[str]()
    for key, v, big, deleted, at in found:
        seen.add(key)
        if key in source.fleeting:
            different += [] if deleted else [f"{key} is not marked"]
            continue
        _, wanted_v, wanted_big, _, ended = last[key]
        times = {None} if ended is None else {None, ended}
        if (v, big, deleted) != (wanted_v, wanted_big, ended is not None) or (at and _utc(at)) not in times:
            different.append(f"{key}: {v}, {len(big or '')} bytes, {deleted}, {at}; wanted {last[key]}")
    unseen = last.keys() - seen - source.fleeting
    missing = [key for key in unseen if (ended := last[key][4]) is None or ended > whole]
    return [*different, *(f"missing: {key}" for key in missing)]


def _changed(rows: dict[int, Values], changes: Iterable[Change]) -> list[int]:
    """The keys that they touch."""
    touched = dict[int, None]()
    for _, op, _, unchanged, key, v, big in changes:
        if op == "t":
            touched |= dict.fromkeys(rows)
            rows.clear()
            continue
        assert key is not None
        touched[key] = None
        if op == "d":
            rows.pop(key, None)
            continue
        missing = json.loads(unchanged or "[]")
        assert not set(missing) - {"v", "big"}
        before = rows.get(key, (None, None))
        rows[key] = before[0] if "v" in missing else v, before[1] if "big" in missing else big
    return list(touched)
