"""Waiting for what a connection has to read."""

import select


def readable(*descriptors: int, seconds: float) -> bool:
    """True as soon as one of the descriptors can be read, or has ended. Not by `select.select`, which refuses
    descriptors above 1023: a process with many tables has more files open."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))
