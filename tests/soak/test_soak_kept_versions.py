"""A table all of whose versions, changes by day, or deleted rows stay in a lake, in lives of whole drivers that end by
SIGKILL: its whole history is what the commits of the source were."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from demo.compare import READERS
from support import mysql_shop
from support.mysql import MYSQL, MysqlServer
from support.postgres import PostgresServer
from support.proof.committed import KeptCommits, differing
from support.proof.kept_rows import COLUMNS, OF_CHANGES, OF_MARKED, differing_marks, of_changes, of_rows
from support.proof.kills import live_and_die
from support.proof.mysql_commits import MysqlCommits
from support.proof.process import Deployment


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("history", ["Versions", "Changes", "SoftDelete"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_the_whole_history_is_that_of_the_source_s_commits_whoever_is_killed(
    postgres: PostgresServer, tmp_path: Path, format: str, history: str
) -> None:
    random, source = Random(11), KeptCommits(postgres, Random(12))
    options = {"match": "*.*", "history": history} | ({"partitionBy": "day"} if history == "Changes" else {})
    spec: dict[str, object] = {
        "options": [options],
        "snapshot": {"chunkRows": 17, "parallelism": 3},
    }
    deployment = Deployment(tmp_path / "proof", postgres.source(), format, spec)
    source.begin(0.02)
    try:
        deployment.once()
        ((whole,),) = postgres.execute("SELECT clock_timestamp()")
        kills = sum(live_and_die(deployment, "proof.kept", random, life) for life in range(3))
    finally:
        deployment.close()
    source.stop()
    deployment.once()
    names = {"Versions": COLUMNS.split(", "), "Changes": OF_CHANGES, "SoftDelete": OF_MARKED}[history]
    rows = READERS[format](deployment.lake / "proof" / "kept").select(names).to_pylist()
    kept = [tuple(row.values()) for row in rows]
    if history == "SoftDelete":
        different = differing_marks(kept, source, whole)
        assert len(rows) == len({row["id"] for row in rows}) and sum(row["_deleted_at"] is not None for row in rows) > 3
    else:
        different = differing(of_rows(kept) if history == "Versions" else of_changes(kept), source.versions(), whole)
        assert len(rows) > 500
    assert not different, "\n".join(different)
    assert kills > 3


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_the_versions_of_a_table_of_mysql_are_those_of_its_commits_whoever_is_killed(
    tmp_path: Path, format: str
) -> None:
    random = Random(13)
    spec: dict[str, object] = {
        "tables": {"include": ["proof.*"]},
        "options": [{"match": "*.*", "history": "Versions"}],
        "snapshot": {"chunkRows": 17, "parallelism": 3},
    }
    with MysqlServer(MYSQL) as server:
        source = MysqlCommits(server, Random(14))
        deployment = Deployment(tmp_path / "proof", mysql_shop.spec(server), format, spec)
        source.begin(0.02)
        try:
            deployment.once()
            whole = datetime.now(UTC)  # of this machine, as the server's
            kills = sum(live_and_die(deployment, "proof.kept", random, life) for life in range(3))
        finally:
            deployment.close()
        source.stop()
        deployment.once()
        rows = READERS[format](deployment.lake / "proof" / "kept").select(COLUMNS.split(", ")).to_pylist()
        different = source.differing(of_rows(tuple(row.values()) for row in rows), whole)
    assert not different, "\n".join(different)
    assert kills > 3 and len(rows) > 500
