"""The owner of a change log, and the names of the objects that Tailrace creates in a source for it. Pure.

Capture writes the owner into the journal, `tailrace drop` and every start compare with it, and the operator names the
objects in its messages.
"""

import hashlib
import re

from tailrace.contract.resources import Replicator

PREFIX = "tailrace_"
MAX_IDENTIFIER = 63
"""Bytes of a PostgreSQL identifier."""
MARK_DIGITS = 8


def owner(replicator: Replicator) -> str:
    """`namespace/name@uid` of an object in Kubernetes, whose uid no other object ever has; else the plain name: a
    process on another machine with the same manifest is the same Replicator."""
    meta = replicator.metadata
    return owner_of(meta.namespace, meta.name, meta.uid) if meta.uid else meta.name


def owner_of(namespace: str, name: str, uid: str) -> str:
    """The owner's name for an object in Kubernetes."""
    return f"{namespace}/{name}@{uid}"


def goes_to(owner_of_log: str, replicator: Replicator) -> bool:
    """True if a start of this Replicator may continue a change log of this owner."""
    return owner_of_log in (owner(replicator), replicator.spec.storage.adopt)


def may_go_to(owner_of_log: str, replicator: Replicator) -> bool:
    """Checks the same as far as a manifest without uid can tell, which may be that of an object in Kubernetes: by the
    name, and by the namespace if the manifest names one."""
    meta = replicator.metadata
    if goes_to(owner_of_log, replicator) or meta.uid is not None:
        return goes_to(owner_of_log, replicator)
    namespace, found, name = owner_of_log.rpartition("@")[0].rpartition("/")
    named = "namespace" in meta.model_fields_set
    return bool(found) and name == meta.name and (not named or namespace == meta.namespace)


def made_name(name: str, mark: str) -> str:
    """Slot and publication of a Replicator: `tailrace_<name>_<digits>` in the letters that a slot may have. `mark` is
    what tells namesakes apart (see `mark`)."""
    digits = hashlib.sha256(mark.encode()).hexdigest()[:MARK_DIGITS]
    room = MAX_IDENTIFIER - len(PREFIX) - MARK_DIGITS - 1
    return f"{PREFIX}{_plain(name)[:room]}_{digits}"


def is_made(name: str) -> bool:
    """True for a name in the form of `made_name`."""
    return re.fullmatch(rf"{PREFIX}\w*_[0-9a-f]{{{MARK_DIGITS}}}", name) is not None


def mark(uid: str | None, location: str) -> str:
    """The object's uid in Kubernetes; else the change log's location."""
    return uid or location


def made_by(replicator: Replicator) -> str:
    """The name for a new change log of this Replicator."""
    return made_name(replicator.metadata.name, mark(replicator.metadata.uid, replicator.spec.storage.location))


def _plain(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name.lower())
