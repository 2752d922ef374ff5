"""`tailrace drop`: what a Replicator leaves in the world when it goes for good. Run by hand, by the operator's Job, or
by the driver itself before it ends.

What is dropped has been proven this Replicator's (`removal.claims`); what has not is kept and named. With `data`,
tables and change log go too (`removal.data`); without it the change log is left to whoever starts next.
Every step may have been done before, by this command or by a person: it can be run again after it died anywhere.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import EpochStarted
from tailrace.changelog.state import LogState
from tailrace.changelog.writer import JournalWriter
from tailrace.contract import ownership
from tailrace.contract.driver import DropReport
from tailrace.contract.resources import Replicator
from tailrace.errors import CorruptLog, TailraceError
from tailrace.removal import claims
from tailrace.removal import data as drop_data
from tailrace.removal.claims import Claim, Known
from tailrace.seams import seam
from tailrace.sources.postgresql import objects as slots
from tailrace.sources.postgresql import publication
from tailrace.sources.postgresql.connect import Connection, PgConfig, connect
from tailrace.sources.postgresql.first_start import FirstStart
from tailrace.sources.postgresql.log.replication import release_slot
from tailrace.storage.store import Storage


class _TakenOver(Exception):
    """Another Replicator owns the change log by now."""


@dataclass(frozen=True)
class Step:
    """One thing that was looked at, and what became of it."""

    what: str
    outcome: Literal["dropped", "kept", "absent"]
    why: str = ""
    """Of what is kept."""

    def __str__(self) -> str:
        words = {"dropped": "dropped", "kept": f"kept: {self.why}", "absent": "there is none"}
        return f"{self.what}: {words[self.outcome]}"


def drop(replicator: Replicator, secrets: Path | None, run_dir: Path, *, data: bool) -> Iterator[Step]:
    """Does it and tells each step. The source first: a slot left behind fills its disk."""
    storage = Storage.open(replicator.spec.storage)
    found = _read(storage, ownership.owner(replicator))
    config = PgConfig.of(replicator.spec.source, "tailrace drop", secrets)
    with connect(config) as connection:
        server = slots.identify(connection)
        here = Known(replicator, storage.root, server.system_identifier, server.database)
        if isinstance(found, TailraceError):
            # Another may have taken the log over, and the slot with its name: only the log says so. Tried again later.
            yield from _named(connection, here, found)
            raise found
        state, left = found
        known = replace(here, log=state, left=left)
        # A publication whose slot is still read would end that stream.
        for claim in (*claims.claims(known, "slot"), *claims.claims(known, "publication")):
            yield _drop_claim(connection, claim, lambda same: _kept_by_now(storage, known, same))
    if data:
        yield from (Step(*step) for step in drop_data.drop(known, storage, run_dir))
    elif state is not None and claims.foreign(known) is None and not state.released:
        seam("drop.before-release")
        yield from _release(storage, known)
    if left is not None and left.owner in (None, known.owner):
        # Dying before this line: the note still says what was made, and all of it is gone.
        FirstStart.forget(storage)


def report_of(replicator: Replicator, steps: list[Step], complete: bool) -> DropReport:
    """`steps` of one attempt or several. That a thing stays which the user named is no news."""
    dropped = dict.fromkeys(step.what for step in steps if step.outcome == "dropped")
    left = [step for step in steps if step.outcome == "kept" and step.why != claims.GIVEN]
    kept = {step.what: step.why for step in left if step.what not in dropped}
    return DropReport(
        owner=ownership.owner(replicator),
        complete=complete,
        dropped=tuple(dropped),
        kept=tuple(f"{what}: {why}" for what, why in kept.items()),
    )


def _read(storage: Storage, owner: str) -> tuple[LogState | None, FirstStart | None] | TailraceError:
    """The change log (None: there is none) and the note of a first start; or why they cannot be read."""
    try:
        return _state(storage, owner), FirstStart.read(storage)
    except TailraceError as error:
        return error


def _state(storage: Storage, owner: str) -> LogState | None:
    try:
        state = JournalReader.open(storage).state
    except CorruptLog:
        note = drop_data.noted(storage)
        if note is None or note.owner != owner:
            raise
        return None  # half deleted by us, and nobody has started here since: the note says the rest
    return state if state.origin is not None else None


def _named(connection: Connection, known: Known, error: TailraceError) -> Iterator[Step]:
    """What stays for as long as the change log cannot be read."""
    for claim in (*claims.claims(known, "slot"), *claims.claims(known, "publication")):
        if _there(connection, claim):
            why = claim.kept if claim.kept == claims.GIVEN else f"the change log cannot be read ({error.message})"
            yield Step(claim.what, "kept", why)


def _there(connection: Connection, claim: Claim) -> bool:
    if claim.kind == "slot":
        return slots.find_slot(connection, claim.name) is not None
    return publication.look(connection, claim.name) is not None


def _kept_by_now(storage: Storage, known: Known, claim: Claim) -> str | None:
    """Asked right before the drop: waiting for a slot's backend to end takes seconds, in which another Replicator may
    have taken the log over, and the slot with it."""
    found = _read(storage, known.owner)
    if isinstance(found, TailraceError):
        raise found
    state, left = found
    same = [c for c in claims.claims(replace(known, log=state, left=left), claim.kind) if c.name == claim.name]
    return same[0].kept if same else f"the change log at {known.root} is another one by now"


def _drop_claim(connection: Connection, claim: Claim, kept_by_now: Callable[[Claim], str | None]) -> Step:
    if not _there(connection, claim):
        return Step(claim.what, "absent")
    if claim.kept is not None:
        return Step(claim.what, "kept", claim.kept)
    if claim.kind == "slot":
        # Held by our own process that was cut off: the server notices a dead peer only after wal_sender_timeout.
        release_slot(connection, claim.name, claim.applications, time.sleep)
    why = kept_by_now(claim)
    if why is not None:
        return Step(claim.what, "kept", why)
    if claim.kind == "publication":
        slots.drop_publication(connection, claim.name)
        return Step(claim.what, "dropped")
    # Whoever takes the log over from here on and reads the slot makes this fail, and the next attempt keeps it.
    if slots.find_slot(connection, claim.name) is not None:  # half made, it went with its maker
        slots.drop_slot(connection, claim.name)
    return Step(claim.what, "dropped")


def _release(storage: Storage, known: Known) -> Iterator[Step]:
    """The log has no owner any more, so the same manifest, applied again, may go on with it. Whoever has taken it over
    since it was read is not fenced out of it."""

    def admit(state: LogState) -> None:
        why = claims.foreign(replace(known, log=state))
        if why is not None:
            raise _TakenOver(why)

    try:
        JournalWriter.claim(storage, uuid.uuid4().hex, admit, started=EpochStarted(owner=known.owner, released=True))
    except _TakenOver as error:
        yield Step(f"change log {storage.root}", "kept", str(error))
