"""Source databases, one folder each, behind the protocols of `tailrace.sources.api`. This registry alone knows them."""

from pathlib import Path

from tailrace.contract import resources
from tailrace.sources.api import Source


def open(spec: resources.Source, who: str, secrets: Path | None = None) -> Source:
    """The source that the manifest names. `who`: what the database shows our connections as. `secrets`: folder in which
    Secret `name` is mounted as `name/<key>`."""
    from tailrace.sources.postgresql.source import PostgresSource  # brings the database client

    return PostgresSource.of(spec, who, secrets)
