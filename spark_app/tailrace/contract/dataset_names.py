"""Names of tables in lineage events, by OpenLineage's rules (https://openlineage.io/docs/spec/naming). Pure."""

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from tailrace.contract.places import ServerSpec, SourceSpec
from tailrace.contract.target import TargetSpec

_PRODUCTS = {"postgresql": "postgres", "mysql": "mysql"}


class DatasetName(NamedTuple):
    """The name of a table, unique in the world."""

    namespace: str
    name: str


def of_source(spec: SourceSpec, schema: str, table: str) -> DatasetName:
    """`table` of `schema`, in MySQL of the database of that name."""
    return _of_server(spec, schema, table)


def of_target(spec: TargetSpec, schema: str, table: str, folder: str) -> DatasetName:
    """The copy of a table. `table`: its name in the target. `folder`: its path below a lake's location."""
    if spec.bigquery is not None:
        return DatasetName("bigquery", f"{spec.bigquery.project}.{spec.bigquery.dataset}.{table}")
    if spec.snowflake is not None:
        inside = (spec.snowflake.database.upper(), spec.snowflake.schema_name.upper(), table)
        return DatasetName(f"snowflake://{spec.snowflake.account}", ".".join(inside))
    if spec.is_server:
        return _of_server(spec.server, spec.schema_name or schema, table)
    place = urlsplit(spec.lake.location)
    path = f"{place.path.rstrip('/')}/{folder}"
    if place.scheme == "file":
        return DatasetName("file", path)
    return DatasetName(f"{place.scheme}://{place.netloc}", path.lstrip("/"))


def in_catalog(spec: TargetSpec, schema: str, table: str, encode: Callable[[str], str]) -> DatasetName | None:
    """The copy's name in its Iceberg catalog; None: it has none. `encode`: the name of a folder for a name."""
    if spec.type != "iceberg":
        return None
    catalog = spec.catalog
    if catalog is None or catalog.type == "folder":  # it makes folders of the names
        return DatasetName(spec.lake.location.rstrip("/"), f"{encode(schema)}.{encode(table)}")
    return None if catalog.uri is None else DatasetName(catalog.uri, f"{schema}.{table}")


def uri_of_source(spec: SourceSpec) -> str:
    return _uri(spec)


def uri_of_target(spec: TargetSpec) -> str:
    if spec.bigquery is not None:
        return "bigquery"
    if spec.snowflake is not None:
        of = spec.snowflake
        return f"snowflake://{of.account}/{of.database.upper()}/{of.schema_name.upper()}"
    return _uri(spec.server) if spec.is_server else spec.lake.location


def _of_server(spec: ServerSpec, schema: str, table: str) -> DatasetName:
    inside = [schema, table] if spec.database is None else [spec.database, schema, table]
    return DatasetName(_authority(spec), ".".join(inside))


def _authority(spec: ServerSpec) -> str:
    host = f"[{spec.host}]" if ":" in spec.host else spec.host
    return f"{_PRODUCTS[spec.type]}://{host}:{spec.tcp_port}"


def _uri(spec: ServerSpec) -> str:
    return _authority(spec) + ("" if spec.database is None else f"/{spec.database}")
