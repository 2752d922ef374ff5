"""Drops what a change log has in PostgreSQL: the slot, then the publication. A publication whose slot is still read
would end that stream.

A name alone proves nothing: a namesake's slot may have it. Proof is the origin (the journal's, or that of the note of a
first start that was interrupted), and a name made of the Replicator's own uid. Called by
`sources.postgresql.subscription`.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tailrace.changelog.records import Origin
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.databases.postgresql.connect import Connection
from tailrace.sources.api import NAMED_BY_USER, RemovalProof, RemovalStep
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql import publication
from tailrace.sources.postgresql.log.connection import release_slot
from tailrace.sources.postgresql.names import DATABASE, PUBLICATION, SLOT, SYSTEM, Names, publication_text, slot_text

Kind = Literal["slot", "publication"]
TEXTS = {"slot": slot_text, "publication": publication_text}


class _TakenOver(Exception):
    """The log is another's by now: why its slot and publication stay."""


@dataclass(frozen=True)
class OwnedObject:
    """A thing in the source, if it is there, and what is to become of it."""

    kind: Kind
    name: str
    kept: str | None = None
    """Why it stays; None: it is dropped."""
    applications: tuple[str, ...] = ()
    """Connections of these names are our own predecessor's and may be ended."""

    @property
    def what(self) -> str:
        return TEXTS[self.kind](self.name)


def claims(
    replicator: Replicator, root: str, proof: RemovalProof, server: slots.ServerIdentity
) -> Iterator[OwnedObject]:
    """Pure."""
    block = replicator.spec.source.postgresql
    given = block.slot, block.publication
    kinds: tuple[Kind, Kind] = ("slot", "publication")
    for kind, named in zip(kinds, given, strict=True):
        if named is not None:
            yield OwnedObject(kind, named, NAMED_BY_USER)
        elif proof.origin is not None:
            claim = _of_origin(kind, root, proof.origin, server, proof.kept)
            yield replace(claim, applications=Names.of_log(replicator, proof.origin).applications)
        else:
            yield _by_name(kind, replicator, root, proof.kept)


def _of_origin(kind: Kind, root: str, origin: Origin, server: slots.ServerIdentity, kept: str | None) -> OwnedObject:
    name = origin.identity[SLOT if kind == "slot" else PUBLICATION]
    made, here = (origin.identity[SYSTEM], origin.identity[DATABASE]), (server.system_identifier, server.database)
    why = kept
    if why is None and TEXTS[kind](name) not in origin.made:
        why = f"the change log at {root} did not make it"
    if why is None and made != here:
        why = (
            f"it was made in system {made[0]}, database {made[1]};"
            f" the manifest leads to system {here[0]}, database {here[1]}"
        )
    return OwnedObject(kind, name, why)


def _by_name(kind: Kind, replicator: Replicator, root: str, kept: str | None) -> OwnedObject:
    """Without a change log. A name that holds this Replicator's uid is its own; a backend that uses it stays: a
    Replicator that took the log over continues with the slot's name."""
    unproven = None if replicator.metadata.uid else f"there is no change log at {root} that made it"
    return OwnedObject(kind, ownership.made_by(replicator), kept or unproven)


def drop(connection: Connection, claim: OwnedObject, kept_by_now: Callable[[OwnedObject], str | None]) -> RemovalStep:
    if not _there(connection, claim):
        return RemovalStep(claim.what, "absent")
    if claim.kept is not None:
        return RemovalStep(claim.what, "kept", claim.kept)

    def admit() -> None:
        why = kept_by_now(claim)
        if why is not None:
            raise _TakenOver(why)

    try:
        if claim.kind == "slot":
            # Held by our own process that was cut off: the server notices a dead peer only after wal_sender_timeout.
            release_slot(connection, claim.name, claim.applications, time.sleep, admit)
        admit()
    except _TakenOver as error:
        return RemovalStep(claim.what, "kept", str(error))
    if claim.kind == "publication":
        slots.drop_publication(connection, claim.name)
    # Whoever takes the log over from here on and reads the slot makes this fail, and the next attempt keeps it.
    elif slots.find_slot(connection, claim.name) is not None:  # half made, it went with its maker
        slots.drop_slot(connection, claim.name)
    return RemovalStep(claim.what, "dropped")


def _there(connection: Connection, claim: OwnedObject) -> bool:
    if claim.kind == "slot":
        return slots.find_slot(connection, claim.name) is not None
    return publication.look(connection, claim.name) is not None
