"""A table of MySQL whose every commit its writer keeps, with moments of the server before and after it; and the
versions of its rows that a copy with all versions must have."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from threading import Event, Thread
from typing import Any

from support.mysql import MysqlServer
from support.proof.committed import KEYS, Values, Version

TABLE = ("CREATE DATABASE proof", "CREATE TABLE proof.kept (id int PRIMARY KEY, v int, big longtext)")
Within = tuple[datetime, datetime]
"""Moments before and after a commit."""


@dataclass(frozen=True)
class Wanted:
    values: Values
    begun: Within
    ended: Within | None


@dataclass
class MysqlCommits:
    """One writer at random. Each change of a row gives it another `v`, by which its versions are told apart."""

    server: MysqlServer
    random: Random
    rows: dict[int, Values] = field(default_factory=dict)
    there: dict[int, tuple[Values, Within]] = field(default_factory=dict)
    ended: dict[tuple[int, int], Wanted] = field(default_factory=dict)
    """By key and `v`."""
    count: int = 0
    _ending: Event = field(default_factory=Event)
    _thread: Thread | None = None
    _fault: BaseException | None = None

    def __post_init__(self) -> None:
        self.server.script(*TABLE)

    def begin(self, pause: float) -> None:
        self._thread = Thread(target=self._run, args=(pause,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        assert self._thread is not None
        self._ending.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._fault is not None:
            raise self._fault

    def _run(self, pause: float) -> None:
        try:
            with closing(self.server.connect(autocommit=False)) as connection, connection.cursor() as cursor:
                while not self._ending.wait(pause):
                    self.commit(cursor)
        except BaseException as fault:
            self._fault = fault

    def commit(self, cursor: Any) -> None:
        """One transaction of a few changes, or a TRUNCATE, which commits by itself."""
        before, touched = _now(cursor), dict[int, None]()
        if self.random.random() < 0.01:
            cursor.execute("TRUNCATE proof.kept")
            touched |= dict.fromkeys(self.rows)
            self.rows.clear()
        else:
            for _ in range(self.random.choice((1, 1, 2, 5))):
                touched |= dict.fromkeys(self._change(cursor))
        cursor.execute("COMMIT")
        within = before, _now(cursor)
        for key in touched:
            if key in self.there:
                values, begun = self.there.pop(key)
                assert values[0] is not None
                self.ended[key, values[0]] = Wanted(values, begun, within)
            if key in self.rows:
                self.there[key] = self.rows[key], within

    def _change(self, cursor: Any) -> Sequence[int]:
        """Returns the keys that it touched."""
        random, rows, kind = self.random, self.rows, self.random.random()
        key, other = random.randrange(KEYS), random.randrange(KEYS)
        self.count += 1
        if key not in rows:
            rows[key] = self.count, random.choice("abc") * random.choice((3, 3000))
            cursor.execute("INSERT INTO proof.kept VALUES (%s, %s, %s)", (key, *rows[key]))
            return [key]
        if kind < 0.25:
            cursor.execute("DELETE FROM proof.kept WHERE id = %s", (key,))
            del rows[key]
            return [key]
        if kind < 0.4 and other not in rows:
            cursor.execute("UPDATE proof.kept SET id = %s, v = %s WHERE id = %s", (other, self.count, key))
            rows[other] = self.count, rows.pop(key)[1]
            return [key, other]
        big = random.choice("abc") * random.choice((3, 3000)) if kind < 0.6 else rows[key][1]
        rows[key] = self.count, big
        cursor.execute("UPDATE proof.kept SET v = %s, big = %s WHERE id = %s", (*rows[key], key))
        return [key]

    def differing(self, found: Sequence[Version], whole: datetime) -> list[str]:
        """The versions in which they differ, of those that were there at a moment at which the first snapshot had
        ended, or later."""
        wanted = {key: version for key, version in self.ended.items() if version.ended and version.ended[1] > whole}
        wanted |= {(key, values[0] or 0): Wanted(values, begun, None) for key, (values, begun) in self.there.items()}
        later = [version for version in found if version[4] is None or version[4] > whole]
        keyed = {(id_, v or 0): version for version in later for id_, v in [version[:2]]}
        assert len(keyed) == len(later), "a version is there twice"
        surely = {key for key, version in wanted.items() if version.ended is None or version.ended[0] > whole}
        lines = [f"missing: {key}" for key in surely - keyed.keys()]
        lines += [f"only in the copy: {key}" for key in keyed.keys() - wanted.keys()]
        return lines + [
            f"{key}: {_shown(keyed[key])} instead of {version}"
            for key, version in wanted.items()
            if key in keyed and not _is(keyed[key], version, whole)
        ]


def _is(found: Version, wanted: Wanted, whole: datetime) -> bool:
    _, v, big, begun, ended = found
    return (
        (v, big) == wanted.values
        and (wanted.begun[0] <= whole or _within(begun, wanted.begun))
        and ((ended is None) if wanted.ended is None else (ended is not None and _within(ended, wanted.ended)))
    )


def _within(moment: datetime, bounds: Within) -> bool:
    return bounds[0] <= moment <= bounds[1]


def _shown(found: Version) -> tuple[object, ...]:
    return found[1], len(found[2] or ""), *found[3:]


def _now(cursor: Any) -> datetime:
    cursor.execute("SELECT UTC_TIMESTAMP(6)")
    (moment,) = cursor.fetchone()
    assert isinstance(moment, datetime)
    return moment.replace(tzinfo=UTC)
