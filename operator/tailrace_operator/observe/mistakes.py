"""Errors about a value that the code does not expect: with one object, they are that object's trouble alone."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)
MISTAKES = (ValueError, LookupError, TypeError, ArithmeticError, AttributeError, AssertionError)


@contextmanager
def passed_over(kind: str, document: Mapping[str, Any]) -> Iterator[None]:
    """Around what takes a document in: one that cannot be read is named in the log, and the others are taken."""
    try:
        yield
    except MISTAKES as error:
        head = document.get("metadata") or {}
        log.error("%s %s/%s cannot be read", kind, head.get("namespace"), head.get("name"), exc_info=error)
