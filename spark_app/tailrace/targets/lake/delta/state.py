"""The applied state as Delta keeps it: the domain metadata `tailrace.applied`. Pure but for the side file.

Written in every commit of Tailrace, so it also distinguishes these commits from others'. `version` is the table version
that the commit aimed at: what comes after it and is not ours is foreign.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.batch.applied import AppliedState
from tailrace.errors import RESYNC, TargetRefused
from tailrace.targets import stored_state

DOMAIN = "tailrace.applied"
INLINE_HOLES = 64 << 10
"""Bytes of holes in the log itself; more go to a file, because every reader of the table loads the domain."""


@dataclass(frozen=True)
class StoredDomain:
    """The domain's content."""

    applied: AppliedState
    version: int
    nonce: str
    holes_file: str | None = None


def encode(stored: StoredDomain, save: Callable[[str, bytes], None]) -> tuple[str, str | None]:
    """The domain's JSON, and the path of the holes' file below the table, if they need one (`save` was then called)."""
    applied = stored.applied
    holes = json.dumps(sorted(applied.holes), ensure_ascii=False)
    path = None
    if len(holes.encode()) > INLINE_HOLES:
        # The last commit's is kept while the holes stay the same. Any other has a name of its own, by the commit's
        # nonce: one that was given up is never named again, so whoever deletes it, however late, takes it from no newer
        # version. A folder with `_` survives VACUUM.
        content = f"_tailrace/holes-{hashlib.sha256(holes.encode()).hexdigest()}"
        path = stored.holes_file
        if path is None or not path.startswith(content):
            path = f"{content}-{stored.nonce}.json"
            save(path, holes.encode())
    document = stored_state.document(applied) | {"version": stored.version, "nonce": stored.nonce}
    document |= {"holesFile": path} if path else {"holes": json.loads(holes)}
    return json.dumps(document, ensure_ascii=False), path


def peek(text: str, table: str) -> AppliedState:
    """The state without its holes: enough to know whose it is, even where their file is gone."""
    return decode(text, lambda _: b"[]", table).applied


def decode(text: str, load: Callable[[str], bytes], table: str) -> StoredDomain:
    """The reverse; `load` reads a side file by its path below the table, `table` is for messages."""
    try:
        document = json.loads(text)
        path = document.get("holesFile")
        applied = stored_state.applied_state(document, json.loads(load(path)) if path else document["holes"], table)
        return StoredDomain(applied, document["version"], document["nonce"], path)
    except (KeyError, ValueError, TypeError) as error:
        raise TargetRefused(
            f"{table} has an unreadable {DOMAIN}: {text[:200]!r}",
            f"Restore the table; or, if it is this Replicator's, delete it and {RESYNC}.",
        ) from error
