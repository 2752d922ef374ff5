"""Masks of the manifest (`options[].mask`) and the key that they hash with: what is the same for every product."""

from collections.abc import Collection
from pathlib import Path

from tailrace.changelog.records.terms import TableSchema
from tailrace.contract.resources import ReplicatorSpec, TableOptions
from tailrace.errors import STOP_FIX, InvalidManifest, ReadRefused, SchemaChangeUnsupported
from tailrace.selection import masking
from tailrace.storage.secret_files import file_place

SECRET_KEY = "maskKey"
"""The key in the Secret that `spec.maskKey` names."""


def configure(spec: ReplicatorSpec, secrets: Path | None) -> None:
    """The key of this process and those that it starts; `secrets` as in `secret_files`."""
    given = spec.mask_key
    if given is None:
        return masking.configure(None)
    path = given.file
    if path is None:
        if secrets is None:
            raise InvalidManifest(
                f"spec.maskKey: Secret {given.secret_name!r} cannot be read outside Kubernetes",
                "Use maskKey.file instead.",
            )
        path = str(secrets / str(given.secret_name) / SECRET_KEY)
    masking.configure(path, file_place(path, "mask key file"))


def mask_of(options: TableOptions | None, column: str) -> str | None:
    """The mask as the change log keeps it; None: the column is not masked."""
    requested = next((m for m in options.mask if m.column == column), None) if options is not None else None
    if requested is None:
        return None
    if requested.method == masking.TRUNCATE:
        return f"{masking.TRUNCATE} {requested.length}"
    if requested.method == masking.REDACT:
        return masking.REDACT
    own = masking.own_hash()
    if own is None:
        raise InvalidManifest(f"options[].mask hashes the column {column!r}, and there is no key", "Set spec.maskKey.")
    return own


def named(options: TableOptions | None) -> set[str]:
    """Columns that the options name, which a table must have."""
    if options is None:
        return set()
    return {*(options.columns or ()), *options.as_, *options.as_text, *(m.column for m in options.mask)}


def misnamed(table: str, options: TableOptions | None, columns: Collection[str]) -> ReadRefused | None:
    """Options name what the table does not have."""
    missing = sorted(named(options) - set(columns))
    if not missing:
        return None
    what = f"options[].columns, as, asText or mask name columns that {table} does not have: {missing}"
    return ReadRefused(table, what, "Correct the column names.")


def of_key(schema: TableSchema) -> ReadRefused | None:
    """A masked key would no longer name one row: different values can have one mask, and chunks end at clear keys."""
    found = next((c for c in schema.key_columns if c.mask is not None), None)
    if found is None:
        return None
    what = f"options[].mask names {found.name!r}, a column of the key of {schema.name}: a key cannot be masked"
    return ReadRefused(schema.name, what, "Remove it from mask, or give the table a key without personal data.")


def require_own(schema: TableSchema) -> None:
    """Before rows of this version are read from the log: `SchemaChangeUnsupported` if they were hashed with a key that
    this process does not have. One column never holds hashes of two keys."""
    column = masking.unmaskable(schema.columns)
    if column is not None:
        what = f"column {column!r} of {schema.name} is hashed with another key than spec.maskKey has now"
        raise SchemaChangeUnsupported(schema.name, what, STOP_FIX)


def described(type: str, mask: str | None) -> str:
    """A text for people: how a column is copied."""
    return type if mask is None else f"{type} ({mask})"
