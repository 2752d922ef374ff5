"""Targets, one folder each, behind the protocols of `tailrace.targets.api`. This registry alone knows them."""

from tailrace.contract import resources
from tailrace.targets.api import Target


def open(spec: resources.TargetSpec, source: str = "", keeps_rows: bool = False) -> Target:
    """The target that the manifest names. `source`: the product that tables come from; empty: not known. `keeps_rows`:
    tables that are taken over may have rows, which are those of the source, as nothing is to be read."""
    if spec.type == "postgresql":
        from tailrace.targets.postgresql.target import PgTarget  # brings its client

        return PgTarget(spec, source, keeps_rows=keeps_rows)
    if spec.type == "mysql":
        from tailrace.targets.mysql.target import MysqlTarget  # brings its client

        return MysqlTarget(spec, source, keeps_rows=keeps_rows)
    if spec.type == "bigquery":
        from tailrace.targets.bigquery.target import BigQueryTarget  # brings its client

        return BigQueryTarget(spec, source)
    if spec.type == "snowflake":
        from tailrace.targets.snowflake.target import SnowflakeTarget  # brings its client

        return SnowflakeTarget(spec, source)
    from tailrace.targets.lake.target import LakeTarget  # brings both table formats

    return LakeTarget(spec)


def table_name(spec: resources.TargetSpec, table: str) -> str:
    """The name in the target of the copy of a table that was first captured under this one."""
    if spec.type == "bigquery":
        from tailrace.targets.bigquery import names

        return names.written(table)
    return table
