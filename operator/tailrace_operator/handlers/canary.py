"""Compares, every minute or so, what the API server holds with what the watches brought. A watch reports nothing when
it misses something: this does, heals the index, and lets the liveness probe fail.
"""

import asyncio
import logging
from collections.abc import Callable

from tailrace.errors import TailraceError
from tailrace_operator.handlers.watching import PLURALS, list_all, try_watch
from tailrace_operator.kube import ApiNotFound, ApiRefused, Kube, Where
from tailrace_operator.observe.index import Index
from tailrace_operator.observe.mistakes import passed_over
from tailrace_operator.observe.model import ObjectKey
from tailrace_operator.observe.watch_rights import WatchRights

log = logging.getLogger(__name__)
EVERY_SECONDS = 120.0
STALE_ROUNDS = 3
"""Rounds in a row with something missing, after which the watches count as dead."""


class Canary:
    def __init__(
        self, kube: Kube, index: Index, access: WatchRights, behind: Callable[[str, str | None], None]
    ) -> None:
        """`behind` is told the kind and the namespace of a list or a watch that is refused."""
        self._kube = kube
        self._index = index
        self._access = access
        self._behind = behind
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
            for namespace in self._access.namespaces:
                if not self._access.bars(namespace, kind):
                    late |= await self._late_if_watched(kind, namespace)
        missed = [key for key, version in late.items() if self._late.get(key) == version]
        self._late = late
        self._rounds = self._rounds + 1 if missed else 0
        for key in missed:
            await self._heal(key)

    async def _late_if_watched(self, kind: str, namespace: str | None) -> dict[ObjectKey, str]:
        try:
            late = await self._late_in(kind, namespace)
            if any(self._late.get(key) == version for key, version in late.items()):
                await try_watch(self._kube, kind, namespace)
        except ApiRefused as error:
            # That namespace, or that definition, alone: it says nothing about the watches of the others.
            self._behind(kind, namespace)
            log.info("%ss cannot be compared: %s", kind, error.message)
            return {}
        return late

    async def _late_in(self, kind: str, namespace: str | None) -> dict[ObjectKey, str]:
        """The versions that the watches have not brought."""
        late: dict[ObjectKey, str] = {}
        before = {key for key in self._index.keys(kind) if namespace in (None, key.namespace)}
        for document in await list_all(self._kube, kind, namespace, metadata_only=True):
            head = document["metadata"]
            key = ObjectKey(kind, head["namespace"], head["name"])
            before.discard(key)
            if self._version(key) != head["resourceVersion"]:
                late[key] = head["resourceVersion"]
        return late | dict.fromkeys(before, "gone")

    def _version(self, key: ObjectKey) -> str | None:
        known = self._index.get(key)
        return str(known["metadata"]["resourceVersion"]) if known is not None else None

    async def _heal(self, key: ObjectKey) -> None:
        try:
            document = await self._kube.call("GET", Where(key.kind, key.namespace, key.name))
            with passed_over(key.kind, document):
                self._index.put(key.kind, document)
        except ApiNotFound:
            self._index.remove(key.kind, key.namespace, key.name)
