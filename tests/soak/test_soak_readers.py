"""Tables with every kind of column, changed by their source after the snapshot, as other programs read them: delta-rs
and pyiceberg against the source, Spark and DuckDB's own extensions against these."""

import subprocess
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

import servers
from demo.compare import READERS, matched, target_rows
from support.conforming import Lake
from support.days import begun, grown, partitioned, wanted_days
from support.histories import expected
from support.proof import tables
from support.proof.harness import SMALL, Begin
from tailrace.changelog.history import COMMIT_DAY, named, stored

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""PySpark leaves the sockets of `collect` to the garbage collector."""
DUCKDB = Path(__file__).parent.parent / "support" / "duckdb_reader.py"
MADE = """
CREATE TYPE proof.pair AS (x int, y text);
CREATE TABLE proof.every (id int PRIMARY KEY, flag bool, small smallint, wide bigint, f real, d float8,
    few numeric(9,2), many numeric(38,10), loose numeric, t text, c char(5), raw bytea, day date, ts timestamp,
    tz timestamptz, u uuid, v uuid, doc jsonb, numbers int[], texts text[], sums numeric(12,3)[], p proof.pair);
INSERT INTO proof.every SELECT n, n % 2 = 0, n, n::bigint * 1000000007, n / 3.0, n / 7.0, n / 100.0,
    n * 1234567890.0123456789, n * 1e15, 'text ' || n, 'c' || n % 10, decode(lpad(to_hex(n), 8, '0'), 'hex'),
    date '2020-01-01' + n, timestamp '2020-01-01 00:00:00.000001' + n * interval '1 hour',
    timestamptz '2020-01-01 00:00:00.000001+02' + n * interval '1 hour', md5(n::text)::uuid, md5('v' || n)::uuid,
    jsonb_build_object('n', n), ARRAY[n, NULL, -n], ARRAY['a' || n, NULL], ARRAY[n / 8.0],
    ROW(n, 'p' || n)::proof.pair FROM generate_series(1, 60) n;
INSERT INTO proof.every (id, f, d) VALUES (100, 'NaN', '-0.0'), (101, '-0.0', '-Infinity'), (102, NULL, NULL);
CREATE TABLE proof.keyless (a int, b text);
ALTER TABLE proof.keyless REPLICA IDENTITY FULL;
INSERT INTO proof.keyless SELECT n % 5, 'b' || n % 3 FROM generate_series(1, 40) n;
CREATE TABLE proof.timed (id int PRIMARY KEY, at time);
INSERT INTO proof.timed SELECT n, time '00:00:00.000001' + n * interval '17 minutes' FROM generate_series(1, 60) n;
"""
CHANGED = """
UPDATE proof.every SET t = 'changed' WHERE id % 3 = 0;
DELETE FROM proof.every WHERE id % 7 = 0;
DELETE FROM proof.keyless WHERE a = 1;
UPDATE proof.single SET v = v + 1 WHERE id % 2 = 0;
DELETE FROM proof.single WHERE id % 5 = 0;
DELETE FROM proof.timed WHERE id % 4 = 0;
"""
LISTED = {"numbers": "list", "texts": "list", "sums": "list", "p": "struct", "v": "binary"}
NAMES = [*(table.name for table in tables.TABLES), "every", "keyless", "timed"]


def by_spark(spark: SparkSession, format: str, lake: Path, table: str) -> pa.Table:
    if format == "delta":
        return spark.sql(f"SELECT * FROM delta.`{lake / 'proof' / table}`").toArrow()
    spark.conf.set("spark.sql.catalog.read", "org.apache.iceberg.spark.SparkCatalog")
    for name, value in {"type": "hadoop", "cache-enabled": "false", "warehouse": str(lake)}.items():
        spark.conf.set(f"spark.sql.catalog.read.{name}", value)
    return spark.sql(f"SELECT * FROM read.proof.{table}").toArrow()


def by_duckdb(format: str, place: Path, out: Path) -> pa.Table:
    what = place
    if format == "iceberg":
        versions = place.glob("metadata/v*.metadata.json")
        what = max(versions, key=lambda path: int(path.name.split(".")[0][1:]))
    command = [servers.duckdb_readers(), DUCKDB, format, what, out]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return pq.read_table(out)


def differences(table: str, found: pa.Table, wanted: pa.Table) -> list[str]:
    assert found.column_names == wanted.column_names
    one, other = (([repr(value) for value in row] for row in target_rows(rows)) for rows in (wanted, found))
    return matched(table, wanted.column_names, (), map(tuple, one), map(tuple, other))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_readers_find_the_rows_of_every_kind_of_column(
    prove: Begin, spark: SparkSession, tmp_path: Path, format: str
) -> None:
    kinds = {"every": LISTED, "timed": {"at": "time"} if format == "iceberg" else {}}
    options = [{"match": f"proof.{name}", "as": chosen} for name, chosen in kinds.items()]
    proof = prove(format, seed=11, rows=SMALL, options=options)
    with proof.server.connect() as connection:
        connection.execute(sql.SQL(MADE))
    proof.deployment.once()
    with proof.server.connect() as connection:
        connection.execute(sql.SQL(CHANGED))
    proof.deployment.once()
    proof.assert_equal("proof.keyless", "proof.timed")
    lake = proof.deployment.lake
    for name in NAMES:
        wanted = READERS[format](lake / "proof" / name)
        assert wanted.num_rows
        found = by_duckdb(format, lake / "proof" / name, tmp_path / f"{name}.parquet")
        assert differences(f"{name} by DuckDB", found, wanted) == []
        if (format, name) != ("iceberg", "timed"):
            assert differences(f"{name} by Spark", by_spark(spark, format, lake, name), wanted) == []


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_readers_find_the_days_of_every_change(spark: SparkSession, tmp_path: Path, format: str) -> None:
    """A copy that is partitioned by the days of the commits."""
    (tmp_path / "log").mkdir()
    log = begun(Lake(format, tmp_path, spark), tmp_path, partitioned())
    grown(log, 9, Random(5))
    log.grow_by_changes(30)
    log.bring()
    place = tmp_path / "lake" / "public" / "t"
    wanted = READERS[format](place)
    days = wanted_days(expected(log), stored(log.schema))
    assert wanted.num_rows == days.total() and len(days) > 4
    frame, day = spark.read.format(format).load(place.as_uri()), named(log.schema, COMMIT_DAY)
    unread = [day] if format == "delta" else []
    """DuckDB 1.5.5 has NULL in it, with its extension for Delta: docs/history.md says so."""
    found = by_duckdb(format, place, tmp_path / "found.parquet")
    assert differences("by DuckDB", found.drop_columns(unread), wanted.drop_columns(unread)) == []
    assert differences("by Spark", frame.toArrow(), wanted) == []
    assert {row[0] and str(row[0]): row[1] for row in frame.groupBy(day).count().collect()} == dict(days)
    one = max(filter(None, days))
    chosen = frame.where(f"{day} = DATE '{one}'")
    assert chosen.count() == days[one]
    if format == "delta":  # of Iceberg's files, Spark does not tell
        assert 0 < len(chosen.inputFiles()) < len(frame.inputFiles())
