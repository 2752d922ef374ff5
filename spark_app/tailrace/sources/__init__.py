"""Source databases, one folder each, behind the protocols of `tailrace.sources.api`. This registry alone knows them."""

from pathlib import Path

from tailrace.contract import resources
from tailrace.sources.api import Source


def open(spec: resources.SourceSpec, who: str, secrets: Path | None = None) -> Source:
    """The source that the manifest names. `who`: what the database shows our connections as. `secrets`: folder in which
    Secret `name` is mounted as `name/<key>`."""
    match spec.type:  # each brings its database client
        case "postgresql":
            from tailrace.sources.postgresql.source import PgSource

            return PgSource.of(spec, who, secrets)
        case "mysql":
            from tailrace.sources.mysql.source import MysqlSource

            return MysqlSource.of(spec, who, secrets)


def of_replicator(spec: resources.ReplicatorSpec, who: str, secrets: Path | None = None) -> Source:
    """The source of a Replicator: its log comes from the server, or from the change log that the manifest follows."""
    database = open(spec.source, who, secrets)
    if spec.follow is None:
        return database
    from tailrace.sources.followed.source import FollowedSource

    return FollowedSource(database, spec.follow)


def dialect(spec: resources.SourceSpec) -> str:
    """The name that sqlglot has for the source's SQL."""
    return {"postgresql": "postgres", "mysql": "mysql"}[spec.type]
