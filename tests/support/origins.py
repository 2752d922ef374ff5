"""Origins of change logs for tests that have no source, or a PostgreSQL of which only names matter."""

from tailrace.changelog.records import Origin
from tailrace.sources.postgresql.names import (
    DATABASE,
    PUBLICATION,
    SLOT,
    SYSTEM,
    TIMELINE,
    publication_text,
    slot_text,
)


def origin(log_id: str = "l", owner: str = "shop", name: str = "s", system: str = "1", *, made: bool = True) -> Origin:
    """`name`: of slot and publication, which Tailrace has `made`."""
    identity = {SYSTEM: system, TIMELINE: "1", DATABASE: "d", SLOT: name, PUBLICATION: name}
    things = (slot_text(name), publication_text(name)) if made else ()
    return Origin(log_id=log_id, source="postgresql", identity=identity, made=things, owner=owner)
