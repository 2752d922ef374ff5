"""Compares, every minute or so, what the API server holds with what the watches brought. A watch reports nothing when
it misses something: this does, heals the index, and lets the liveness probe fail.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from tailrace.errors import TailraceError
from tailrace_operator.handlers.watching import PLURALS, list_all
from tailrace_operator.kube import ApiNotFound, Kube, Where
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.model import ObjectKey

EVERY_SECONDS = 120.0
STALE_ROUNDS = 3
"""Rounds in a row with something missing, after which the watches count as dead."""


class Canary:
    def __init__(
        self, kube: Kube, index: Index, namespaces: Sequence[str | None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kube = kube
        self._index = index
        self._namespaces = namespaces
        self._clock = clock
        self._late: dict[ObjectKey, str] = {}
        self._rounds = 0

    @property
    def stale(self) -> bool:
        return self._rounds >= STALE_ROUNDS

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            try:
                await self.look()
            except TailraceError:
                # The API server is away: that says nothing about the watches.
                self._late.clear()

    async def look(self) -> None:
        """One comparison. What is late twice in a row, in the same version, the watches have missed."""
        late: dict[ObjectKey, str] = {}
        for kind in PLURALS:
            before = set(self._index.keys(kind))
            alive: set[ObjectKey] = set()
            for namespace in self._namespaces:
                for document in await list_all(self._kube, kind, namespace, metadata_only=True):
                    head = document["metadata"]
                    key = ObjectKey(kind, head["namespace"], head["name"])
                    alive.add(key)
                    if self._version(key) != head["resourceVersion"]:
                        late[key] = head["resourceVersion"]
            for key in before - alive:
                late[key] = "gone"
        missed = [key for key, version in late.items() if self._late.get(key) == version]
        self._late = late
        self._rounds = self._rounds + 1 if missed else 0
        for key in missed:
            await self._heal(key)

    def _version(self, key: ObjectKey) -> str | None:
        known = self._index.get(key)
        return str(known["metadata"]["resourceVersion"]) if known is not None else None

    async def _heal(self, key: ObjectKey) -> None:
        try:
            self._index.put(key.kind, await self._kube.call("GET", Where(key.kind, key.namespace, key.name)))
        except ApiNotFound:
            self._index.remove(key.kind, key.namespace, key.name)
