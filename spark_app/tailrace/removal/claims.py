"""Decides what `tailrace drop` may drop: what this Replicator's change log says it made, in this very source. Pure.

A name alone proves nothing: a namesake's slot may have it. Proof is, in this order, the journal's origin, the note of a
first start that was interrupted, and a name made of the Replicator's own uid.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tailrace.changelog.records import Origin
from tailrace.changelog.state import LogState
from tailrace.contract import ownership
from tailrace.contract.resources import Replicator
from tailrace.sources.postgresql.first_start import FirstStart
from tailrace.sources.postgresql.names import Names, made_publication

Kind = Literal["slot", "publication"]
GIVEN = "it is named in the manifest"
WORDS: dict[Kind, str] = {"slot": "replication slot", "publication": "publication"}


@dataclass(frozen=True)
class Known:
    """What a decision stands on."""

    replicator: Replicator
    root: str
    """Of the change log."""
    system_identifier: str
    database: str
    """Of the source that the manifest leads to."""
    log: LogState | None = None
    """None: there is no change log, or it cannot be read."""
    left: FirstStart | None = None

    @property
    def owner(self) -> str:
        """Under which a change log is the asker's. `storage.adopt` proves nothing here: a start takes a log over and
        writes itself into it; one that never started has made nothing."""
        return ownership.owner(self.replicator)


@dataclass(frozen=True)
class Claim:
    """A thing in the source, if it is there, and what is to become of it."""

    kind: Kind
    name: str
    kept: str | None = None
    """Why it stays; None: it is dropped."""
    applications: tuple[str, ...] = ()
    """Connections of these names are our own predecessor's and may be ended."""

    @property
    def what(self) -> str:
        return f"{WORDS[self.kind]} {self.name}"


def foreign(known: Known) -> str | None:
    """Why the change log is not the asker's; None: it is, or there is none."""
    log = known.log
    if log is None or log.origin is None:
        return None
    if log.owner is not None:
        return None if log.owner == known.owner else f"the change log at {known.root} belongs to {log.owner}"
    # From before change logs had owners: the names say whose it is, as they did then.
    names = Names.of_log(known.replicator, log.origin)
    if names.made == (log.origin.slot, log.origin.publication):
        return None
    return f"the change log at {known.root} reads slot {log.origin.slot}, not {names.slot}"


def claims(known: Known, kind: Kind) -> Iterator[Claim]:
    source = known.replicator.spec.source
    given = source.postgresql.slot if kind == "slot" else source.postgresql.publication
    if given is not None:
        yield Claim(kind, given, GIVEN)
    elif known.log is not None and known.log.origin is not None:
        yield _of_log(known, known.log.origin, kind)
    elif known.left is not None:
        yield _of_note(known, known.left, kind)
    else:
        yield from _by_name(known, kind)


def _of_log(known: Known, origin: Origin, kind: Kind) -> Claim:
    name = origin.slot if kind == "slot" else origin.publication
    made = origin.slot_created if kind == "slot" else made_publication(origin)
    why = foreign(known)
    if why is None and not made:
        why = f"the change log at {known.root} did not make it"
    here = (known.system_identifier, known.database)
    if why is None and (origin.system_identifier, origin.database) != here:
        why = _elsewhere((origin.system_identifier, origin.database), here)
    return Claim(kind, name, why, Names.of_log(known.replicator, origin).applications)


def _of_note(known: Known, left: FirstStart, kind: Kind) -> Claim:
    name = left.slot if kind == "slot" else left.publication
    names = Names.of(known.replicator, left.log_id or "")
    here = (known.system_identifier, known.database)
    why = None
    if left.owner not in (None, known.owner):
        why = f"the start that made it was of {left.owner}"
    elif left.system_identifier is not None and (left.system_identifier, left.database) != here:
        why = _elsewhere((left.system_identifier, left.database), here)
    return Claim(kind, name or ownership.made_by(known.replicator), why, names.applications)


def _by_name(known: Known, kind: Kind) -> Iterator[Claim]:
    """Without a change log. A name that holds this Replicator's uid is its own; a backend that uses it stays: whoever
    took the log over goes on with the slot's name."""
    unproven = f"there is no change log at {known.root} that made it"
    meta = known.replicator.metadata
    yield Claim(kind, ownership.made_by(known.replicator), None if meta.uid else unproven)
    yield Claim(kind, ownership.former_name(meta.name), unproven)


def _elsewhere(made: tuple[object, object], here: tuple[object, object]) -> str:
    return f"it was made in system {made[0]}, database {made[1]}; the manifest leads to system {here[0]}, {here[1]}"
