"""Signs of life of work that takes minutes. Standard library only: bootstrap uses it before anything is installed."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def signs_of_life(what: str, say: Callable[[str], None], every: float = 30.0) -> Iterator[None]:
    """Say every half minute that the work is not finished."""
    over, begun = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(every):
            say(f"still {what}: {time.monotonic() - begun:.0f} s so far")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
