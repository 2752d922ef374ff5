"""Processes that open a table and read its rows all the time, as others' programs do, while its writer goes on.

The writer may ask since when: what was replaced before, no read that is under way can need. A test that forgets
versions up to that moment depends on no reader's speed.
"""

import multiprocessing
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

COUNT = 2
PAUSE = 0.02
"""Between two reads, so that two readers do not take both cores of a machine."""


@dataclass
class Reads:
    """What the readers do, and what they met."""

    done: Sequence[int]
    """Successful reads of each, as they come."""
    _begun: Sequence[float]
    faults: Counter[str] = field(default_factory=Counter)
    """Complete after the block."""

    def since(self) -> float:
        """No read that is under way, or still to come, began before."""
        return min(self._begun)


class _Shared(NamedTuple):
    """Between this process and the readers."""

    begun: Any
    done: Any
    over: Any
    found: Any


def _read(read: Callable[[], pa.Table], number: int, shared: _Shared) -> None:
    faults = Counter[str]()
    while not shared.over.is_set():
        time.sleep(PAUSE)
        shared.begun[number] = time.time()
        try:
            keys = read().column("id").to_pylist()
        except Exception as error:  # whatever a reader can meet is what is asked for
            faults[f"{type(error).__name__}: {error}"] += 1
            continue
        shared.done[number] += 1
        faults["a key stands twice"] += len(keys) != len(set(keys))
    shared.found.put(+faults)


@contextmanager
def reading(read: Callable[[], pa.Table]) -> Iterator[Reads]:
    """The readers run while the block does. `read` goes to other processes."""
    spawn = multiprocessing.get_context("spawn")
    begun, done = spawn.Array("d", [time.time()] * COUNT), spawn.Array("i", COUNT)
    shared = _Shared(begun, done, spawn.Event(), spawn.Queue())
    reads = Reads(shared.done, shared.begun)
    processes = [spawn.Process(target=_read, args=(read, number, shared)) for number in range(COUNT)]
    for process in processes:
        process.start()
    try:
        yield reads
        shared.over.set()
        for _ in processes:
            reads.faults += shared.found.get(timeout=60)
    except queue.Empty:
        raise AssertionError("a reader has died") from None
    finally:
        shared.over.set()
        for process in processes:
            process.join(10)
            process.kill()
