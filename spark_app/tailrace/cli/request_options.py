"""Options that describe a SnapshotRequest, and the request that they make: of `tailrace` and of `kubectl tailrace`."""

import argparse
import csv
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.contract.resources import SnapshotRequest


def add_size(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--chunk-rows", type=int, metavar="N", help="rows of a chunk (default: adaptive)")
    sub.add_argument("--parallelism", type=int, metavar="N", help="chunks read at the same time")


def add_rows(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--where", metavar="SQL", help="only rows that match this condition on the source's columns")
    sub.add_argument(
        "--keys", nargs="+", metavar="KEY", help="only these keys; separate the columns of a composite key by commas"
    )


def add_sample(sub: argparse.ArgumentParser) -> None:
    what = "compare about this share of each table's rows (5%%); rows that only the target has are not looked for"
    sub.add_argument("--sample", metavar="SHARE", help=what)


def of_rows(options: argparse.Namespace, replicator: str, program: str, **more: Any) -> "SnapshotRequest":
    keys = None if options.keys is None else tuple(tuple(row) for row in csv.reader(options.keys))
    return of_tables(options, replicator, options.tables, program, where=options.where, keys=keys, **more)


def of_tables(
    options: argparse.Namespace, replicator: str, tables: Sequence[str], program: str, **more: Any
) -> "SnapshotRequest":
    """`program`: as users call the command line, for the fix of what is wrong."""
    from pydantic import ValidationError  # a third of a second, which `kubectl tailrace status` does without

    from tailrace.contract.manifest import invalid
    from tailrace.contract.resources import SnapshotRequest, SnapshotRequestSpec

    try:
        spec = SnapshotRequestSpec(
            replicator=replicator,
            tables=tuple(tables),
            chunk_rows=options.chunk_rows,
            parallelism=options.parallelism,
            **more,
        )
        document = {
            "apiVersion": "tailrace.dev/v1alpha1",
            "kind": "SnapshotRequest",
            "metadata": {"name": options.id or _unique()},
            "spec": spec,
        }
        return SnapshotRequest.model_validate(document)
    except ValidationError as error:
        raise invalid(error, "command line", fix=f"See `{program} {options.command} --help`.", named=_flag) from error


def _flag(location: Sequence[int | str]) -> str:
    """The option that a field of the request comes from."""
    return "--id" if location[0] == "metadata" else f"--{location[0]}".replace("_", "-")


def _unique() -> str:
    """Without --id every call is a snapshot of its own: a user who asks twice wants it read twice."""
    return f"manual-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}"
