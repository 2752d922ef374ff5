"""Targets, one folder each, behind the protocols of `tailrace.targets.api`. This registry alone knows them."""

from tailrace.contract import resources
from tailrace.targets.api import Target


def open(spec: resources.TargetSpec) -> Target:
    """The target that the manifest names."""
    if spec.type == "postgresql":
        from tailrace.targets.postgresql.target import PgTarget  # brings its client

        return PgTarget(spec)
    if spec.type == "mysql":
        from tailrace.targets.mysql.target import MysqlTarget  # brings its client

        return MysqlTarget(spec)
    from tailrace.targets.lake.target import LakeTarget  # brings both table formats

    return LakeTarget(spec)
