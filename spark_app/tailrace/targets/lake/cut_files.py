"""The manifests of cuts in a Delta lake: `<location>/_tailrace/cuts/<name>.json`, one for each cut, for readers.

Written by the driver once the journal holds what they say. They keep nothing alive by themselves.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from tailrace.storage.store import NotFound, Storage

log = logging.getLogger(__name__)

FOLDER = "_tailrace/cuts"


class CutFiles:
    def __init__(self, lake: Storage) -> None:
        self._lake = lake

    def show(self, log_id: str, name: str, document: Mapping[str, Any]) -> None:
        path = f"{FOLDER}/{name}.json"
        if self._log_of(path) not in (None, log_id):
            log.warning("%s is a cut of another Replicator, which has its tables here, too", self._lake.uri(path))
            return
        self._lake.put(path, json.dumps({**document, "log": log_id}, indent=1).encode())

    def hide(self, log_id: str, name: str) -> None:
        path = f"{FOLDER}/{name}.json"
        if self._log_of(path) == log_id:
            self._lake.delete(path)

    def names(self, log_id: str) -> list[str]:
        """The change log's own."""
        found = [path for path, _ in self._lake.list(f"{FOLDER}/") if path.endswith(".json")]
        return [path.rpartition("/")[2].removesuffix(".json") for path in found if self._log_of(path) == log_id]

    def remove(self, log_id: str) -> None:
        for name in self.names(log_id):
            self.hide(log_id, name)
        self._lake.prune(FOLDER)

    def _log_of(self, path: str) -> str | None:
        """None: there is nothing that names one."""
        try:
            document = json.loads(self._lake.get(path))
        except (NotFound, ValueError):
            return None
        return document.get("log") if isinstance(document, dict) else None
