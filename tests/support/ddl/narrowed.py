"""One partitioned table whose publication is narrowed and widened while its partitions come and go, under writers.

A `Narrowed` plays rounds over one `InProcess`: statements by one session, changes of rows by another, both while
capture and driver work and look, with pauses between the steps of a look and of a chunk. A round ends with everything
repaired as the documents tell, and with source = target. Used by the soak test of it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from support.ddl.fork_server import PAUSES
from support.ddl.fuzz import FIX
from support.ddl.in_process import InProcess, Refused
from support.ddl.kinds import publication
from support.ddl.script import refusal, repaired
from support.ddl.verify import verify
from tailrace.errors import InvalidManifest
from tailrace.sources.postgresql import chunks

NAME = "SELECT pubname FROM pg_publication ORDER BY pubname = 'given' DESC LIMIT 1"
AGAIN = (
    "DO $$ DECLARE p name; BEGIN {name} INTO p;"
    " BEGIN EXECUTE format('ALTER PUBLICATION %I DROP TABLE s.ranged', p); EXCEPTION WHEN undefined_object THEN NULL;"
    " END; {add} END $$"
)
ADD = "EXECUTE format('ALTER PUBLICATION %I ADD TABLE s.ranged {what}', p);"
NARROW = (
    AGAIN.format(name=NAME, add=ADD.format(what="WHERE (id < 9)")),
    AGAIN.format(name=NAME, add=ADD.format(what="(id)")),
    AGAIN.format(name=NAME, add=""),
    publication("SET (publish = ''insert, update'')"),
    publication("SET (publish_via_partition_root = false)"),
)
WIDE = (
    AGAIN.format(name=NAME, add=ADD.format(what="")),
    publication("SET (publish = ''insert, update, delete, truncate'', publish_via_partition_root = true)"),
)
SETUP = (
    "CREATE SCHEMA s; CREATE SCHEMA o",
    "CREATE TABLE s.ranged (id int PRIMARY KEY, a text, big text) PARTITION BY RANGE (id)",
    "CREATE TABLE s.r0 PARTITION OF s.ranged FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE s.r1 PARTITION OF s.ranged FOR VALUES FROM (100) TO (200)",
    "ALTER TABLE s.r0 ALTER big SET STORAGE EXTERNAL; ALTER TABLE s.r1 ALTER big SET STORAGE EXTERNAL",
    "INSERT INTO s.ranged SELECT g * 11, 'a' || g, repeat('b', 3000) FROM generate_series(1, 17) g",
)
LEAVES = range(4)
REPAIRS = 3
"""What was stopped while it was repaired is repaired once more."""


@dataclass
class Narrowed:
    in_process: InProcess
    rnd: Random
    told: list[str] = field(default_factory=list)
    """Statements of the round, with the second at which each was done."""

    def begin(self, given: bool, pause: float) -> None:
        in_process = self.in_process
        for line in SETUP:
            in_process.sql(line)
        if given:
            in_process.spec |= {"source": {"postgresql": {"publication": "given"}}}
            in_process.sql("CREATE PUBLICATION given FOR TABLE s.ranged WITH (publish_via_partition_root = true)")
        in_process.spec |= {"tables": {"include": ["s.ranged"]}}
        (in_process.folder / PAUSES).write_text(str(pause))
        in_process.start()
        in_process.settle()
        in_process.session().execute("SET lock_timeout = '1s'")

    def round(self, seconds: float) -> list[str]:
        """What is wrong at its end."""
        self.told.clear()
        over = threading.Event()
        writers = [threading.Thread(target=w, args=(over, Random(self.rnd.random()))) for w in (self._rows, self._ddl)]
        for writer in writers:
            writer.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                self._turn()
        finally:
            over.set()
            for writer in writers:
                writer.join()
        return self._repair()

    def _turn(self) -> None:
        try:
            self.in_process.turn()
            if self.rnd.random() < 0.02:
                self.in_process.ask(["s.ranged"], resync=self.rnd.random() < 0.7)
                self._tell("-- asked")
        except InvalidManifest:
            pass  # it is stopped
        except Refused as refused:
            self._restart(refused)

    def _restart(self, refused: Refused) -> None:
        """The Replicator is refused by name: it is started again when the publication is as it must be."""
        self._tell(f"-- {refused}")
        while True:
            self.in_process.stop(kill=True)
            for line in WIDE:
                self._do("fix", line)
            try:
                return self.in_process.start()
            except Refused:
                continue

    def _repair(self) -> list[str]:
        wrong: list[str] = []
        for _ in range(REPAIRS):
            for line in FIX:
                self._do("fix", line)
            try:
                verdict = verify(self.in_process, self.in_process.settle())
                if verdict.wrong or not verdict.stopped:
                    return [*verdict.wrong]
                self._tell(f"-- stopped: {verdict.stopped}")
                wrong = [*repaired(self.in_process, verdict, "resync")]
                if not wrong:
                    return []
            except Refused as refused:
                self._restart(refused)
        return wrong

    # ---- sessions ----

    def _rows(self, over: threading.Event, rnd: Random) -> None:
        while not over.is_set():
            first = rnd.randrange(len(LEAVES) * 100)
            some = f"id % {rnd.choice((2, 3, 5))} = 0 AND id BETWEEN {first - 50} AND {first + 50}"
            lines = [
                f"INSERT INTO s.ranged SELECT g, 'n{first}', repeat('n', 3000) FROM"
                f" generate_series({first}, {first + rnd.randrange(8)}) g ON CONFLICT DO NOTHING",
                f"UPDATE s.ranged SET a = a || '.' WHERE {some}",
                f"UPDATE s.ranged SET id = id + {rnd.choice((1, 97, 100))} WHERE {some}",
                f"DELETE FROM s.ranged WHERE {some}",
            ]
            if rnd.random() < 0.7:
                self._do("rows", rnd.choice(lines))
            else:
                self._do("rows", "BEGIN")
                for _ in range(rnd.randrange(1, 4)):
                    self._do("rows", rnd.choice(lines))
                    time.sleep(rnd.random() * 0.1)
                self._do("rows", "COMMIT")
            time.sleep(rnd.random() * 0.05)

    def _ddl(self, over: threading.Event, rnd: Random) -> None:
        while not over.is_set():
            for line in self._statements(rnd):
                self._do("ddl", line)
                time.sleep(rnd.choice((0, 0, rnd.random() * 0.4)))

    def _statements(self, rnd: Random) -> list[str]:
        leaf = rnd.choice(LEAVES)
        bounds = f"FOR VALUES FROM ({leaf * 100}) TO ({leaf * 100 + 100})"
        attach = f"ALTER TABLE s.ranged ATTACH PARTITION s.r{leaf} {bounds}"
        fill = f"INSERT INTO s.r{leaf} SELECT {leaf * 100} + g, 'x', 'y' FROM generate_series(0, 7) g"
        how = rnd.random()
        if how < 0.25:
            return [rnd.choice(NARROW)]
        if how < 0.45:
            return [*WIDE]
        return rnd.choice((
            [f"CREATE TABLE s.r{leaf} PARTITION OF s.ranged {bounds}"],
            [f"CREATE TABLE s.r{leaf} (LIKE s.ranged INCLUDING ALL)", fill, attach],
            [f"ALTER TABLE s.ranged DETACH PARTITION s.r{leaf}"],
            [f"ALTER TABLE s.ranged DETACH PARTITION s.r{leaf} CONCURRENTLY", f"DELETE FROM s.r{leaf} WHERE id % 3 = 0",
             attach],
            [f"DROP TABLE s.r{leaf}"],
            [attach],
            [f"TRUNCATE s.r{leaf}"],
            [f"BEGIN; LOCK TABLE s.r{leaf} IN SHARE UPDATE EXCLUSIVE MODE; SELECT pg_sleep(0.3); COMMIT"],
            ["TRUNCATE s.ranged"],
        ))  # fmt: skip

    def _do(self, session: str, line: str) -> None:
        why = refusal(self.in_process.session("" if session == "fix" else session), line)
        self._tell(f"-- refused: {line}: {why}" if why else line)

    def _tell(self, line: str) -> None:
        self.told.append(f"{time.time() % 1000:8.3f} {threading.current_thread().name[-3:]} {line}")


@contextmanager
def pausing_chunks(rnd: Random, longest: float) -> Iterator[None]:
    """Chunks take random pauses around their snapshot."""
    seam: Callable[[str], Any] = chunks.__dict__["seam"]

    def paused(name: str) -> None:
        time.sleep(rnd.choice((0, rnd.random() * longest)))
        seam(name)

    chunks.__dict__["seam"] = paused
    try:
        yield
    finally:
        chunks.__dict__["seam"] = seam
