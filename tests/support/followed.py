"""A Replicator and one that follows its change log, over the database in memory."""

import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from support.killed import killed_at
from support.pipeline import Pipeline
from support.scripted import ScriptedSource
from support.scripted_database import Change, Database
from support.scripted_runs import Copy, by_key, change, manifest
from tailrace.capture import process
from tailrace.capture.inbox import Board, Inbox
from tailrace.capture.renewal import Renewal
from tailrace.changelog.followers import FollowerLease, lease_path, leases, needed, write_lease
from tailrace.changelog.records.terms import Seq
from tailrace.changelog.retention import Ages, Pins
from tailrace.changelog.rollup import Rollups
from tailrace.changelog.trim import trim, trim_journal
from tailrace.changelog.writer import JournalWriter
from tailrace.contract.places import StorageLocation
from tailrace.sources.followed.source import FollowedSource
from tailrace.storage.store import Storage

DAY = 86_400_000_000
HOUR = DAY // 24
ALWAYS = (("follow.before-record", 1), ("journal.before-create", 1), ("journal.after-create", 1))
"""Seams that a follower reaches whatever its owner has written."""
WITH_ROWS = (
    ("follow.before-record", 2), ("capture.after-segments", 1), ("journal.before-create", 2),
    ("journal.after-create", 2), ("capture.before-ack", 1),
)  # fmt: skip
"""Those that it reaches when there are rows that it lacks."""
OWNERS = WITH_ROWS[1:]


def write_aged(storage: Storage, lease: FollowerLease) -> None:
    """A lease that was written when it says, also by the storage's clock."""
    write_lease(storage, lease)
    os.utime(Path(storage.access.prefix) / lease_path(lease.log_id), (lease.written_at / 1_000_000,) * 2)


class Follower(Pipeline):
    """Copies the owner's tables from its change log."""

    def __init__(self, owner: Copy, folder: Path, follows: Pipeline | None = None) -> None:
        """`follows`: whose log is read; None: the owner's."""
        folder.mkdir(exist_ok=True)
        location = (follows or owner).document["spec"]["storage"]["location"]
        source = FollowedSource(ScriptedSource(owner.database), StorageLocation(location=location))
        super().__init__(manifest(folder, follow={"location": location}), source, folder)
        self.document["metadata"]["name"] = "follower"
        self.owner, self.database = owner, owner.database

    @property
    def lease(self) -> FollowerLease:
        (found,) = leases(self.owner.storage)
        return found

    def level(self) -> None:
        self.settle(self.database.end)

    def rows(self, table: int) -> dict[int, str | None]:
        return by_key(self.lake.table("main", self.database.names[table - 1]).rows())


def all_over(pipeline: Pipeline, request: str) -> None:
    """The next start begins the stream again (`tailrace resync --all`)."""
    Renewal(id=request, request=request).write(pipeline.storage)


def both_equal(owner: Copy, follower: Follower) -> None:
    """Everything that is committed is in both copies."""
    database = owner.database
    owner.level()
    follower.level()
    assert owner.driver.faults() == {} and follower.driver.faults() == {}
    for number in range(1, len(database.names) + 1):
        assert owner.rows(number) == database.rows(number), f"owner, {database.names[number - 1]}"
        assert follower.rows(number) == database.rows(number), f"follower, {database.names[number - 1]}"


def followed(owner: Copy, follower: Follower, random: Random, turns: int = 60) -> None:
    """A run in which the follower joins late and is restarted; there are transactions that the log has before they are
    visible, a table that comes later, one that starts over, and one that must be read again."""
    database = owner.database
    waiting: list[int] = []
    joins, later, again = (random.randrange(turns // 2) for _ in range(3))
    restarts, differs = (turns // 2 + random.randrange(turns // 2) for _ in range(2))
    owner.start()
    for turn in range(turns):
        for _ in range(3):
            hidden = not waiting and random.random() < 0.3
            number = database.commit(*change(random, database, random.randint(1, len(database.names))), hidden=hidden)
            waiting += [number] if hidden else []
        if waiting and random.random() < 0.5:
            database.hidden.discard(waiting.pop())
        if turn == later:
            database.names.append("items")
        if turn == joins:
            follower.start()
        if turn == turns // 2 + again // 2:
            owner.ask("main.orders", resync=True)
        if turn == differs:
            database.differing.add(1)
        if turn == restarts:
            follower.stop()
            follower.start()
        owner.turn()
        if turn >= joins:
            follower.turn()
    database.hidden.clear()
    both_equal(owner, follower)


def filled_with(random: Random, rows: int = 30) -> Database:
    database = Database(["orders"])
    for _ in range(rows):
        database.commit(*change(random, database, 1))
    return database


def more(database: Database, count: int = 5) -> None:
    for _ in range(count):
        database.commit(Change("I", 1, 5000 + database.end, "more"))


@contextmanager
def pair(tmp_path: Path, random: Random | None = None) -> Iterator[tuple[Copy, Follower]]:
    """An owner and its follower; neither is started."""
    (tmp_path / "owner").mkdir()
    owner = Copy(filled_with(random or Random(1)), tmp_path / "owner")
    follower = Follower(owner, tmp_path / "follower")
    try:
        yield owner, follower
    finally:
        follower.stop()
        owner.stop()


def forget(owner: Copy, days: int) -> None:
    """Retention of the stopped owner, as it will be in so many days."""
    storage = owner.storage
    writer = JournalWriter.claim(storage, "retention")
    rollups, _ = Rollups.load(storage)
    rollups.write(storage, writer.state)
    now = int(time.time() * 1_000_000) + days * DAY
    pins = Pins(Seq(writer.state.last_seq + 1), followers=needed(storage, now).seq)
    going = trim(writer, pins, Ages(now=now, retention=HOUR, retry=HOUR))
    storage.delete_many(going.paths)
    trim_journal(storage, now, HOUR)


def life(follower: Pipeline) -> None:
    """One life of capture, on this thread; it ends by itself only if no seam is reached."""
    stopping = threading.Event()
    threading.Timer(10.0, stopping.set).start()
    what = process.Following(follower.replicator, follower.source, follower.folder / uuid.uuid4().hex, follower.timing)
    process.follow(what, (Inbox(), Board()), stopping)


def die(owner: Copy, follower: Follower, owners: tuple[str, int], followers: tuple[str, int]) -> None:
    """The owner is killed while it writes, its follower while it reads what is left; retention of the owner has its
    turn before the two start again."""
    more(owner.database, 3)
    killed_at(owners[0], lambda: life(owner), owners[1])
    killed_at(followers[0], lambda: life(follower), followers[1])
    forget(owner, 6)


def survive(owner: Copy, follower: Follower, random: Random, turns: int) -> None:
    """Either of them, or both, die at seams drawn by chance; what the owner may forget is forgotten meanwhile."""
    with owner.running(), follower.running():
        both_equal(owner, follower)
    for _ in range(turns):
        for _ in range(random.randint(1, 4)):
            owner.database.commit(*change(random, owner.database, 1))
        match random.randrange(3):
            case 0:
                die(owner, follower, random.choice(OWNERS), random.choice(ALWAYS))
            case 1:
                with owner.running():
                    more(owner.database, random.randint(2, 5))
                    owner.level()
                seam, visit = random.choice(WITH_ROWS)
                killed_at(seam, lambda: life(follower), visit)
            case _:
                with owner.running(), follower.running():
                    both_equal(owner, follower)
        forget(owner, random.choice((0, 6)))
    with owner.running(), follower.running():
        both_equal(owner, follower)
