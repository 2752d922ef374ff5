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
from tailrace.cli.console.local import LocalFleet
from tailrace.cli.console.watched import Watched
from tailrace.driver.process.run_dir import token_of
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
    token = secrets.token_urlsafe(24) if token_file is None else token_of(token_file)
    opened = listening(listen)
    host, port = opened.getsockname()[:2]
    shown = "" if token_file is not None else f"#token={token}"
    print(f"console at http://{host}:{port}/{shown}", flush=True)
    serve(ConsoleApp(LocalFleet(watched, token, allow_actions=actions)), opened)
    return 0


def serve(console: ConsoleApp, opened: socket.socket) -> None:
    """Serves until a signal ends it."""
    app = application(console)
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
