"""Azurite, Microsoft's emulator of Azure's blobs, on loopback and in memory."""

import base64
import hashlib
import hmac
import socket
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import servers
from demo.ports import free_port
from support.process import Program

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's account and key, which are public and the same everywhere."""
VERSION = "2021-08-06"


class Azurite:
    """`environment` leads clients to it; `new_container()` makes an empty container."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "azurite.log"
        self._port = free_port()
        self._containers = 0
        self._process: Program | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{self._port}",
        }

    def __enter__(self) -> Self:
        command = ["node", str(servers.azurite()), "--blobHost", "127.0.0.1", "--blobPort", str(self._port)]
        options = ("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent")
        self._process = Program.start([*command, *options], self._log)
        self._process.until(self._listens, 60, "azurite listens")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def new_container(self) -> str:
        """Make an empty container, by a request signed as Azure's documentation says (Shared Key)."""
        self._containers += 1
        name = f"container-{self._containers}"
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = f"x-ms-date:{date}\nx-ms-version:{VERSION}"
        text = "PUT" + "\n" * 12 + f"{headers}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
        request = urllib.request.Request(
            f"{self.environment['AZURITE_BLOB_STORAGE_URL']}/{ACCOUNT}/{name}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": VERSION,
                "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 201
        return name

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True
