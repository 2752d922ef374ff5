"""Reads a table by DuckDB's own extension of its format, in an environment of its own: they exist for an older DuckDB.

python duckdb_reader.py delta FOLDER OUT.parquet
python duckdb_reader.py iceberg METADATA.json OUT.parquet
"""

import importlib.util
import sys
from pathlib import Path

import duckdb
import pyarrow.parquet as pq


def main(format: str, place: str, out: str) -> None:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", format) if format == "iceberg" else (format,):
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert found is not None and found.origin is not None
        (extension,) = Path(found.origin).parent.rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    pq.write_table(connection.execute(f"SELECT * FROM {format}_scan('{place}')").to_arrow_table(), out)


if __name__ == "__main__":
    main(*sys.argv[1:])
