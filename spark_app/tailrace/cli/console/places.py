"""The places for answers under way: one Replicator, or one namespace, never holds all of them.

An answer blocks a thread, and one that needs a driver which is silent does so for seconds, a command in its pod for a
minute. Answers wait for a place. Commands have places elsewhere, so that no answer waits for one, and are refused where
none is free: carried out later, a command might surprise whoever gave up waiting.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tailrace.errors import Retry

MOST_ANSWERS, MOST_OF_NAMESPACE, MOST_OF_REPLICATOR = 40, 12, 4
"""Answers at the same time; the page asks four questions about a Replicator at once."""
MOST_COMMANDS, MOST_COMMANDS_OF_NAMESPACE, MOST_COMMANDS_OF_REPLICATOR = 16, 4, 2
"""Commands at the same time."""


class AnswerPlaces:
    """Used from one event loop."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MOST_ANSWERS)
        self._namespaces = _Shares(MOST_OF_NAMESPACE)
        self._replicators = _Shares(MOST_OF_REPLICATOR)
        self._commands: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, name: str | None, *, command: bool) -> AsyncIterator[None]:
        """`name`: the Replicator that it is about. Raises `Retry` if there is no place for a command."""
        if command:
            with self._command(name):
                yield
        elif name is None:
            async with self._all:
                yield
        else:
            # The common place last: who waits for the others holds none.
            async with self._replicators.of(name), self._namespaces.of(_namespace(name)), self._all:
                yield

    @contextmanager
    def _command(self, name: str | None) -> Iterator[None]:
        limits = {"": MOST_COMMANDS}
        if name is not None:
            limits[f" of {name}"] = MOST_COMMANDS_OF_REPLICATOR
            limits[f" in namespace {_namespace(name)}"] = MOST_COMMANDS_OF_NAMESPACE
        for whose, most in limits.items():
            if self._commands[whose] >= most:
                raise Retry(f"{most} commands{whose[:200]} are under way", "Wait until one has ended.")
        self._commands.update(limits.keys())
        try:
            yield
        finally:
            self._commands.subtract(limits.keys())
            self._commands = +self._commands  # names come and go


class _Shares:
    """Places for each name; who finds none waits."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[str, asyncio.Semaphore] = {}
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        self._users[name] += 1
        try:
            async with self._found.setdefault(name, asyncio.Semaphore(self._most)):
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._found[name]


def _namespace(name: str) -> str:
    """The namespace of `namespace:name`. Outside of a cluster each Replicator stands for itself."""
    return name.partition(":")[0]
