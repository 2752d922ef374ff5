"""List and watch of one kind, forever: a list whenever the watch cannot continue, then events from there.

Made by `handlers.watching`, for our two resources and for what belongs to them. What belongs to them is selected by
label on the server, and of Secrets only the metadata is taken, so that neither the cluster's pods nor anybody's
passwords pass through here.
"""

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from tailrace.errors import TailraceError
from tailrace_operator import metrics
from tailrace_operator.kube import ApiRefused, Kube, Where
from tailrace_operator.observe.watch_rights import WatchRights

log = logging.getLogger(__name__)

PAGE = 500
SERVER_SECONDS = 300
"""The API server ends a watch after these, plus up to as many at random, so that not all begin again together."""
SILENCE = 150.0
"""Seconds without a byte: bookmarks come every minute, so the connection is dead."""
MAX_LINE = 16 << 20
"""Bytes of one event. etcd takes objects of 1.5 MiB; quotes in them, and in annotations, come escaped."""
SHORT = 1.0
"""Minimum seconds between two starts of a watch, so that a server that closes watches is not flooded."""
FORBIDDEN = 403
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 6.0
"""Seconds between attempts. A definition that comes back, or a right, is noticed within ten."""
Document = dict[str, Any]


class Expired(TailraceError):
    """The version to continue from is no longer kept: list again."""


@dataclass(frozen=True)
class WatchSink:
    """The receiver of the watched objects."""

    listed: Callable[[list[Document]], None]
    """All there are; what is not among them is gone."""
    changed: Callable[[Document], None]
    removed: Callable[[Document], None]


class Watch:
    def __init__(
        self,
        kube: Kube,
        kind: str,
        namespace: str | None,
        sink: WatchSink,
        *,
        selector: str = "",
        fields: str = "",
        metadata_only: bool = False,
        access: WatchRights | None = None,
    ) -> None:
        """`selector` chooses by labels, `fields` by fields. `access` is told what the API server refuses."""
        self._kube = kube
        self._where = Where(kind, namespace)
        self._sink = sink
        chosen = {"labelSelector": selector, "fieldSelector": fields}
        self._selector = {name: value for name, value in chosen.items() if value}
        self._as = "as=PartialObjectMetadata{};g=meta.k8s.io;v=v1" if metadata_only else ""
        self._access = access or WatchRights([namespace])
        self._what = " ".join([kind, *self._selector.values()])
        """Its name among the watches of the namespace: of some kinds there are two."""
        self.synced = asyncio.Event()

    async def run(self) -> None:
        pause = FIRST_PAUSE
        version: str | None = None
        while True:
            try:
                if version is None:
                    version = await self._list()
                    self.synced.set()
                begun = time.monotonic()
                version = await self._follow(version)
                pause = FIRST_PAUSE
                if time.monotonic() - begun < SHORT:
                    await asyncio.sleep(SHORT * random.uniform(0.7, 1.3))
            except Expired:
                version = None
            except TailraceError as error:
                if isinstance(error, ApiRefused):
                    version = None
                if not self._told(error):
                    log.warning("watching %s: %s; retrying in %.1f s", self._where.kind, error.message, pause)
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(pause * 2, LONGEST_PAUSE)

    def _told(self, error: TailraceError) -> bool:
        """True if it need not be logged: the namespace is known to lack a right, and says so once."""
        if not isinstance(error, ApiRefused) or error.code != FORBIDDEN:
            return False
        self._access.refused(self._where.namespace, self._what, error.message)
        return True

    async def _list(self) -> str:
        metrics.WATCH_STARTS.labels(self._where.kind).inc()
        found: list[Document] = []
        query: dict[str, str | int] = {"limit": PAGE, **self._selector}
        while True:
            page = await self._kube.call("GET", self._where, query=query, accept=self._accept("List"))
            found += page.get("items") or []
            head = page["metadata"]
            if not head.get("continue"):
                self._sink.listed(found)
                return str(head["resourceVersion"])
            query["continue"] = head["continue"]

    async def _follow(self, version: str) -> str:
        """Until the API server ends it; returns the version to continue from."""
        async for event in self._events(version):
            document = event["object"]
            if event["type"] == "ERROR":
                if document.get("code") == 410:
                    raise Expired(str(document.get("message")))
                raise ApiRefused(int(document.get("code", 0)), "", str(document.get("message")))
            version = document["metadata"]["resourceVersion"]
            if event["type"] == "DELETED":
                self._sink.removed(document)
            elif event["type"] != "BOOKMARK":
                self._sink.changed(document)
        return version

    async def _events(self, version: str) -> AsyncIterator[Document]:
        seconds = int(SERVER_SECONDS * random.uniform(1, 2))
        query: dict[str, str | int] = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        query |= {"resourceVersion": version, **self._selector}
        response = await self._kube.open("GET", self._where, query=query, accept=self._accept(""), timeout=seconds + 60)
        self._access.granted(self._where.namespace, self._what)
        try:
            while True:
                async with asyncio.timeout(SILENCE):
                    line = await response.content.readline(max_line_length=MAX_LINE)
                if not line:
                    return
                yield json.loads(line)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            # Cut in the middle: every whole event was taken, so the watch continues from the last one.
            log.info("the watch of %s was interrupted: %r", self._where.kind, error)
        finally:
            response.close()

    def _accept(self, suffix: str) -> str:
        return f"application/json;{self._as.format(suffix)}" if self._as else "application/json"
