"""`tailrace drop` and `tailrace release`: the removal, or the handing over, of what a deleted Replicator leaves behind.
Run by hand, by the operator's Job, or by the driver itself before it ends.

What is dropped has been proven this Replicator's (`removal.claims`, and the source); what has not is kept and named.
With `data`, tables and change log go too (`removal.data`); without it the change log is released to the next Replicator
that starts. After a cutover both stay, whatever is asked for. `release` does only the release: the next Replicator that
starts with the log finds all its objects in the source, and continues. Every step may have been done before, by this
command or by hand, so the command can be repeated after a crash at any point.
"""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tailrace.changelog import first_start
from tailrace.changelog.journal import JournalReader
from tailrace.changelog.records import EpochStarted
from tailrace.changelog.state import LogState
from tailrace.changelog.writer import JournalWriter
from tailrace.contract import ownership
from tailrace.contract.driver import DropReport
from tailrace.contract.resources import DeletionPolicy, Replicator
from tailrace.errors import CorruptLog, TailraceError, TargetRefused
from tailrace.places import Places
from tailrace.removal import claims, followers
from tailrace.removal import data as drop_data
from tailrace.removal.claims import Known
from tailrace.seams import seam
from tailrace.sources.api import NAMED_BY_USER, RemovalProof, RemovalStep
from tailrace.storage.store import Storage

CUT_OVER = (
    "a cutover has ended the replication into them, and programs may write to them; the change log stays too, so that"
    " this Replicator cannot take them over if it is created again"
)


class _TakenOver(Exception):
    """Another Replicator owns the change log by now."""


def drop(
    replicator: Replicator, secrets: Path | None, run_dir: Path, *, data: bool, hurried: bool = False
) -> Iterator[RemovalStep]:
    """Does it and reports each step. The source first: a log that is no longer read fills its disk. `hurried`: there is
    no later attempt, so where followers hold the data, it stays, and the rest goes."""
    places = Places(replicator.spec, "tailrace drop", secrets)
    storage = places.storage
    found = _read(storage, replicator)
    with places.source.subscription(replicator, storage.root) as subscription:
        if isinstance(found, TailraceError):
            # Another may have taken the log over, and what it has in the source: only the log says so. Tried again
            # later.
            unread = f"the change log cannot be read ({found.message})"
            yield from (
                step for step in subscription.remove(lambda: RemovalProof(None, unread)) if step.outcome != "absent"
            )
            raise found
        known = found
        reading = () if claims.foreign(known) is not None else followers.held(storage)
        # One that has begun to delete the log was not refused then, and a lease that came since is not heeded.
        if data and reading and drop_data.noted(storage) is None:
            if not hurried:
                raise followers.refusal(storage, reading)
            data = False
        if not data:
            yield from followers.left(reading)
        yield from subscription.remove(lambda: _proof(_known(_read(storage, replicator))))
    if data and _is_cut_over(known, places):
        data = False
        yield RemovalStep(f"tables at {places.target.place}", "kept", CUT_OVER)
    if data:
        lines = drop_data.drop(known, places, run_dir, lambda: _known(_read(storage, replicator)))
        yield from (RemovalStep(*line) for line in lines)
    elif known.log is not None and claims.foreign(known) is None and not known.log.released:
        yield from _release(storage, known)
    if known.noted is not None and known.noted.owner == known.owner:
        # Dying before this line: the note still says what was made, and all of it is gone.
        first_start.forget(storage)


def release(replicator: Replicator, secrets: Path | None, run_dir: Path) -> Iterator[RemovalStep]:
    """Drops nothing, and releases the change log to the next Replicator that starts with it. Where there is none yet,
    nothing could be continued, and what a first start has made would be useless in the source: there it is `drop`."""
    storage = Places(replicator.spec).storage
    known = _known(_read(storage, replicator))
    if known.log is None:
        yield from drop(replicator, secrets, run_dir, data=False)
        return
    what, why = f"change log {storage.root}", claims.foreign(known)
    if why is not None:
        yield RemovalStep(what, "kept", why)
        return
    yield from followers.left(followers.held(storage))
    taken = [] if known.log.released else list(_release(storage, known))
    yield from taken or [RemovalStep(what, "released")]


def leave(
    replicator: Replicator, secrets: Path | None, run_dir: Path, policy: DeletionPolicy, *, hurried: bool = False
) -> Iterator[RemovalStep]:
    """Carries out the policy of a Replicator that is deleted."""
    if policy == "Orphan":
        return release(replicator, secrets, run_dir)
    return drop(replicator, secrets, run_dir, data=policy == "Delete", hurried=hurried)


def report_of(replicator: Replicator, steps: list[RemovalStep], complete: bool) -> DropReport:
    """The `steps` of one attempt or several. Objects that the user created are always kept, and not reported."""
    dropped = dict.fromkeys(step.what for step in steps if step.outcome == "dropped")
    left = [step for step in steps if step.outcome == "kept" and step.why != NAMED_BY_USER]
    kept = {step.what: step.why for step in left if step.what not in dropped}
    return DropReport(
        owner=ownership.owner(replicator),
        complete=complete,
        dropped=tuple(dropped),
        released=any(step.outcome == "released" for step in steps),
        kept=tuple(f"{what}: {why}" for what, why in kept.items()),
    )


def _is_cut_over(known: Known, places: Places) -> bool:
    """The target keeps the report under the id of the change log. Without the log a start would have a new id, find no
    report, and take for its copies, which the next removal drops, what programs write to."""
    handover = places.target.handover()
    if known.origin is None or handover is None or claims.foreign(known) is not None:
        return False
    try:
        return handover.done(known.origin.log_id) is not None
    except TargetRefused as error:
        if error.absent:
            return False
        raise


def _read(storage: Storage, replicator: Replicator) -> Known | TailraceError:
    """The change log and the note of a first start; or why they cannot be read."""
    try:
        state = _state(storage, ownership.owner(replicator))
        return Known(replicator, storage.root, log=state, noted=first_start.read(storage))
    except TailraceError as error:
        return error


def _known(found: Known | TailraceError) -> Known:
    if isinstance(found, TailraceError):
        raise found
    return found


def _proof(found: Known) -> RemovalProof:
    return RemovalProof(found.origin, claims.foreign(found))


def _state(storage: Storage, owner: str) -> LogState | None:
    try:
        state = JournalReader.open(storage).state
    except CorruptLog:
        note = drop_data.noted(storage)
        if note is None or note.owner != owner:
            raise
        return None  # half deleted by us, and nobody has started here since: the note says the rest
    return state if state.origin is not None else None


def _release(storage: Storage, known: Known) -> Iterator[RemovalStep]:
    """The log no longer has an owner, so the same manifest, applied again, may continue it. A Replicator that has taken
    it over since it was read is not fenced out of it."""

    def admit(state: LogState) -> None:
        why = claims.foreign(replace(known, log=state))
        if why is not None:
            raise _TakenOver(why)

    seam("drop.before-release")
    try:
        JournalWriter.claim(storage, uuid.uuid4().hex, admit, started=EpochStarted(owner=known.owner, released=True))
    except _TakenOver as error:
        yield RemovalStep(f"change log {storage.root}", "kept", str(error))
