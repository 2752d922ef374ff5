"""Processes that open a table and read its rows all the time, as others' programs do, while its writer goes on."""

import multiprocessing
import queue
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

COUNT = 2


@dataclass
class Reads:
    """What the readers met; complete after the block."""

    done: list[int] = field(default_factory=list)
    """Successful reads of each."""
    faults: Counter[str] = field(default_factory=Counter)


def _read(read: Callable[[], pa.Table], over: Any, found: Any) -> None:
    done, faults = 0, Counter[str]()
    while not over.is_set():
        try:
            keys = read().column("id").to_pylist()
        except Exception as error:  # whatever a reader can meet is what is asked for
            faults[f"{type(error).__name__}: {error}"] += 1
            continue
        done += 1
        faults["a key stands twice"] += len(keys) != len(set(keys))
    found.put((done, +faults))


@contextmanager
def reading(read: Callable[[], pa.Table]) -> Iterator[Reads]:
    """Begins once each reader has started. `read` goes to other processes."""
    spawn = multiprocessing.get_context("spawn")
    over, found, reads = spawn.Event(), spawn.Queue(), Reads()
    processes = [spawn.Process(target=_read, args=(read, over, found)) for _ in range(COUNT)]
    for process in processes:
        process.start()
    try:
        yield reads
        over.set()
        for _ in processes:
            done, faults = found.get(timeout=60)
            reads.done.append(done)
            reads.faults += faults
    except queue.Empty:
        raise AssertionError("a reader has died") from None
    finally:
        over.set()
        for process in processes:
            process.join(10)
            process.kill()
