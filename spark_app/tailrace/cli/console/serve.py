"""Serves the console until it is interrupted."""

import logging
import secrets
import signal
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from tailrace.cli.console.app import ConsoleApp, application
from tailrace.cli.console.watched import Watched
from tailrace.errors import InvalidManifest

log = logging.getLogger(__name__)
END_SECONDS = 2
"""Seconds that answers under way have at the end."""


def run(watched: Sequence[Watched], listen: str, token_file: Path | None, *, actions: bool) -> int:
    if not watched:
        raise InvalidManifest("the files hold no such Replicator", "Correct -f, or --name.")
    for name, count in Counter(one.name for one in watched).items():
        if count > 1:
            raise InvalidManifest(f"two Replicators are called {name!r}", "Start a console for each.")
    token = secrets.token_urlsafe(24) if token_file is None else _token(token_file)
    opened = listening(listen)
    host, port = opened.getsockname()[:2]
    shown = "" if token_file is not None else f"#token={token}"
    print(f"console at http://{host}:{port}/{shown}", flush=True)
    console = ConsoleApp(watched, allow_actions=actions)
    app = application(console, token)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=END_SECONDS,
        server_header=False,
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn ends at them, and then raises them again
        signal.signal(number, lambda *_: None)
    try:
        uvicorn.Server(config).run(sockets=[opened])
    finally:
        console.close()
    return 0


def listening(listen: str) -> socket.socket:
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > 65535 or host.startswith("["):
        raise InvalidManifest(f"--listen {listen} is not HOST:PORT", "Write 127.0.0.1:8650.")
    try:
        return socket.create_server((host or "127.0.0.1", int(port)))
    except OSError as error:
        raise InvalidManifest(
            f"cannot listen on {listen}: {error.strerror or error}",
            "Choose an address of this machine and a free port with --listen.",
        ) from error


def _token(path: Path) -> str:
    try:
        token = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise InvalidManifest(f"cannot read the token file {path}: {why}", "Correct --token-file.") from error
    if not token:
        raise InvalidManifest(f"the token file {path} is empty", "Write the token into it.")
    return token
