"""Runs a query over a table by DuckDB's own extension of its format, in the environment of `servers.duckdb_readers`:
prints its first row and the seconds that it took, the first time and once more.

python by_duckdb.py delta FOLDER "SELECT count(*) FROM t"
python by_duckdb.py iceberg METADATA.json "SELECT count(*) FROM t"
"""

import importlib.util
import json
import sys
import time
from pathlib import Path

import duckdb


def main(format: str, place: str, query: str) -> None:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("avro", format) if format == "iceberg" else (format,):
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        if found is None or found.origin is None:
            raise SystemExit(f"the extension {name} is missing")
        (extension,) = Path(found.origin).parent.rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    seconds = list[float]()
    row: tuple[object, ...] | None = None
    for _ in range(2):
        begun = time.perf_counter()
        row = connection.execute(f"WITH t AS (SELECT * FROM {format}_scan('{place}')) {query}").fetchone()
        seconds.append(time.perf_counter() - begun)
    print(json.dumps({"row": [str(value) for value in row or ()], "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
