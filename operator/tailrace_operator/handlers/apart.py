"""Runs what may not wait for anything else in a thread with a loop to itself: the lease's renewal.

Thousands of objects, or a scrape of their gauges, keep the process's own loop busy for seconds; where there is little
CPU, for longer than the lease lasts. Threads take turns every few milliseconds.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any


async def apart(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Ends when the work does, with its error; cancelled, it cancels the work and waits for its end."""
    stopped = threading.Event()
    started: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def run() -> None:
        task = asyncio.create_task(work())
        started.append((asyncio.get_running_loop(), task))
        if stopped.is_set():
            task.cancel()
        await task

    thread = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(run())))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        stopped.set()  # before the look at `started`, which the other thread fills before it looks at this
        for loop, task in started:
            with suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(task.cancel)
        await asyncio.wait([thread])
        raise
