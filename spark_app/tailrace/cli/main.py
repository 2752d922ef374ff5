"""The command line: `tailrace run | status | reload | diff | snapshot | resync | verify | cut | cuts | rewind |
cutover | pause | resume | stop | console | doctor | retained | drop | release`.

Parses, calls, prints and turns errors into exit codes: 0 done or stopped, 2 usage or manifest, 10 refused by source,
target or storage, 11 authentication, 12 position lost, 13 fenced, 1 anything else. The work is done in the other
modules of this package; pyspark is imported only by `run`.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tailrace import __version__, logs
from tailrace.cli import request_options
from tailrace.contract import faults
from tailrace.errors import TailraceError

EXAMPLES = """examples:
  tailrace run -f shop.yaml                  copy and follow, until Ctrl-C
  tailrace run -f shop.yaml --once           up to the source's position at start, then exit (1 if a table failed)
  tailrace doctor -f shop.yaml               check source, storage, change log and target
  tailrace status -f shop.yaml               progress of the running process
  tailrace diff -f shop.yaml                 show the effect of a changed manifest without applying it
  tailrace reload -f shop.yaml               apply changed tables, options or times without a restart
  tailrace snapshot -f shop.yaml --tables 'public.orders' --where "region = 'eu'"
  tailrace snapshot -f request.yaml          a SnapshotRequest from a file
  tailrace run -f shop.yaml --signals file-signals.txt    carry out Debezium's signals from a file
  tailrace verify -f shop.yaml --tables 'public.orders'   compare a copy with its source
  tailrace cutover -f shop.yaml              end the replication into a database, so that programs can write there
  tailrace cut -f shop.yaml before_sale      keep all tables readable as they were at one moment of the source
  tailrace rewind -f shop.yaml --to-cut before_sale       take the tables of a lake back to that cut
  tailrace resync -f shop.yaml --tables 'public.orders'   start a stopped table over
  tailrace pause -f shop.yaml orders-again   pause a snapshot; also: resume, stop
  tailrace console -f shop.yaml -f hr.yaml   serve a web page that shows these Replicators

exit codes: 0 done or stopped, 2 usage or manifest, 3 verify or cutover found differences,
            10 refused by source, target or storage, or cut over, 11 authentication, 12 position lost,
            13 fenced by another writer, 1 anything else
            (also a command, or a run --once, that was interrupted before it was done)
"""


STATUS = "show state, lag, counters and snapshot progress of the running process, or a cutover that has ended it"
DROP = "drop the objects that Tailrace created in the source (slot and publication); with --data also the copies"
ONCE = "exit when everything the source held at start is applied (exit code 1 if a table failed)"

WAIT = "if it fails, keep trying for this long (30s, 5m)"
RELOAD = (
    "apply the changed manifest to the running process: tables, options, onSchemaChange, onTableDrop, snapshot, apply,"
    " objective, verify, cuts, cutover, retry, retention"
)
MANIFEST = "manifest (YAML), - for standard input; may be repeated"
DIFF = "show what a changed manifest would do: restart the driver, read tables again, or be refused"

RESYNC = "a SnapshotRequest with resync: true and tables ['*.*'] (the file may be missing): start every table over once"


SIGNALS = (
    "carry out signals in Debezium's format from this file, one JSON object per line; it is removed when it is read"
)

EXTRAS = {
    "spark": ("duckdb", "numpy", "obstore", "pyarrow", "pyroaring", "pyspark", "rich", "sqlglot"),
    "postgresql": ("psycopg",),
    "mysql": ("pymysql", "zstandard"),
    "bigquery": ("google", "requests"),
    "snowflake": ("snowflake", "cryptography"),
    "console": ("starlette", "uvicorn"),
}
"""The packages of each extra of pyproject.toml, as they are imported: a plain installation has none of them."""
USUAL = ("spark", "postgresql", "mysql")
"""The extras that most installations have."""


class ExtraMissing(TailraceError):
    """The command needs packages of an extra that is not installed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code."""
    options = parser().parse_args(arguments)
    logs.configure(options.log_format, options.log_level)
    try:
        with _extras_named():
            return int(options.act(options))
    except TailraceError as error:
        logs.complain(f"tailrace: {error}")
        faults.leave_fault(error, time.time())
        return error.exit_code
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        if options.command == "run" and not options.once:  # it has no other end
            logs.complain("tailrace: interrupted; the next start continues")
            return 0
        logs.complain("tailrace: interrupted before it was done")
        return 1


@contextmanager
def _extras_named() -> Iterator[None]:
    """Say which extra a package that cannot be imported comes from."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
        if extra is None:
            raise
        every = ",".join(known for known in EXTRAS if known in (*USUAL, extra))
        raise ExtraMissing(
            f"package {package} of the extra {extra} is not installed", f"In a clone, run `pip install '.[{every}]'`."
        ) from error


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    """Imports the command when it is called: `--help` and `--version` need no extra, and print without delay."""

    def act(options: argparse.Namespace) -> int:
        from tailrace.cli import commands

        return int(getattr(commands, name)(options))

    return act


def entry() -> None:
    """The console script: `main`, then out without taking the interpreter apart.

    A thread that never ends keeps objects alive while the interpreter is torn down, and duckdb then prints pages of
    leaks; after an unexpected error the interpreter would wait for the threads of pools forever. By now everything that
    counts is durable, the applier's threads are joined and the JVM has been asked to stop; it ends when this process's
    end of its pipe closes.
    """
    try:
        code = main()
    except Exception as error:
        logs.complain("tailrace: an unexpected error", error)
        faults.leave_fault(error, time.time())
        code = 1
    logging.shutdown()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # the reader of the output has left
        code = code or 1
    os._exit(code)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="tailrace",
        description="Live copies of database tables: in Delta Lake, Apache Iceberg, a database or a warehouse.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"tailrace {__version__}")
    verbs = top.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    _run(verbs)
    _status(verbs)
    sub = _verb(verbs, "reload", RELOAD)
    sub.set_defaults(act=_command("reload"))
    sub = _verb(verbs, "diff", DIFF)
    sub.add_argument("--old", type=Path, metavar="FILE", help="manifest to compare with (default: the driver's own)")
    sub.add_argument("--json", action="store_true", help="print the result as one JSON document")
    sub.set_defaults(act=_command("diff"))
    _snapshot(verbs)
    _resync(verbs)
    _verify(verbs)
    _cutover(verbs)
    _cut(verbs)
    _rewind(verbs)
    for verb, text in (
        ("pause", "pause a snapshot: chunks being read are finished, no new one begins"),
        ("resume", "continue a paused snapshot"),
        ("stop", "stop a snapshot for good; rows already read stay"),
    ):
        sub = _verb(verbs, verb, text)
        sub.add_argument("snapshot", nargs="?", help="id or name of the snapshot; default: the only one running")
        sub.set_defaults(act=_command("change_snapshot"), verb=verb)
    _console(verbs)
    sub = _verb(verbs, "doctor", "check source, storage, change log and target: settings, rights, tables, columns")
    sub.add_argument("--json", action="store_true", help="print the whole report as one JSON document")
    sub.set_defaults(act=_command("doctor"))
    sub = _verb(verbs, "retained", "show how much log the source keeps for this Replicator, also while it does not run")
    sub.add_argument("--json", action="store_true", help="print the result as one JSON document")
    sub.set_defaults(act=_command("retained"))
    sub = _verb(verbs, "drop", DROP)
    sub.add_argument("--data", action="store_true", help="delete the copies in the target and the change log as well")
    sub.add_argument("--wait", default="0s", metavar="TIME", help=WAIT)
    sub.set_defaults(act=_command("drop"))
    sub = _verb(verbs, "release", "leave change log, slot and publication to the next Replicator that starts there")
    sub.add_argument("--wait", default="0s", metavar="TIME", help=WAIT)
    sub.set_defaults(act=_command("release"))
    return top


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str
) -> argparse.ArgumentParser:
    sub = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    sub.add_argument("-f", "--file", type=Path, action="append", required=True, metavar="FILE", help=MANIFEST)
    sub.add_argument("--name", help="name of the Replicator, if the files hold several")
    sub.add_argument("--run-dir", type=Path, help="run directory (default: ~/.local/state/tailrace/<name>)")
    sub.add_argument("--log-format", choices=logs.FORMS, default="text", help="form of the log on standard error")
    sub.add_argument("--log-level", choices=logs.LEVELS, default="info", help="minimum log level")
    return sub


def _run(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "run", "copy the tables and follow their changes")
    sub.add_argument("--once", action="store_true", help=ONCE)
    sub.add_argument("--json", action="store_true", help="print the status as JSON lines on standard output")
    sub.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="status server (default: any free port)"
    )
    sub.add_argument(
        "--token-file", type=Path, help="file with the bearer token (default: created in the run directory)"
    )
    sub.add_argument("--resync", type=Path, metavar="FILE", help=RESYNC)
    sub.add_argument("--stop-at", metavar="CUT|RECORD|TIME", help="apply changes up to here and no further")
    sub.add_argument("--signals", type=Path, metavar="FILE", help=SIGNALS)
    sub.set_defaults(act=_command("run"))


def _status(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "status", STATUS)
    sub.add_argument("--json", action="store_true", help="print the status as one JSON document")
    sub.set_defaults(act=_command("status"))


def _snapshot(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "snapshot", "read tables, or some of their rows, again while changes are followed")
    sub.add_argument("--tables", nargs="+", metavar="PATTERN", help="schema.table, * and ? allowed")
    request_options.add_rows(sub)
    request_options.add_size(sub)
    sub.add_argument(
        "--id", help="name of the request; repeating a request with the same name and content does nothing"
    )
    sub.set_defaults(act=_command("snapshot"))


def _resync(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "resync", "start tables over in their present form: read all rows, then replace the target")
    sub.add_argument("--tables", nargs="+", metavar="PATTERN", help="schema.table, * and ? allowed; stopped ones too")
    sub.add_argument("--all", action="store_true", help="every table; also after PositionLost, without a process")
    request_options.add_size(sub)
    sub.add_argument("--id", help="name of the request; repeating it with the same content does nothing")
    sub.set_defaults(act=_command("resync"))


def _verify(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "verify", "compare copies with their source, row by row, while changes are followed")
    sub.add_argument(
        "--tables", nargs="+", metavar="PATTERN", default=["*.*"], help="schema.table, * and ? allowed (default: all)"
    )
    sub.add_argument(
        "--keys", nargs="+", metavar="KEY", help="only these keys; separate the columns of a composite key by commas"
    )
    request_options.add_sample(sub)
    sub.add_argument("--repair", action="store_true", help="read rows that differ again afterwards")
    sub.add_argument("--json", action="store_true", help="print the result as one JSON document")
    request_options.add_size(sub)
    sub.add_argument("--id", help="name of the request; repeating it waits for the same verification")
    sub.set_defaults(act=_command("verify"), where=None)


def _cutover(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "cutover", "end the replication into a database, so that programs can write to the copies")
    sub.add_argument("--check", action="store_true", help="check and verify only, while programs write to the source")
    sub.add_argument(
        "--timeout", default="10m", metavar="TIME", help="wait this long for the source to be quiet (default: 10m)"
    )
    sub.add_argument(
        "--writers-stopped", action="store_true", help="no program writes to the source, although it is not read-only"
    )
    sub.add_argument(
        "--accept-missing", action="store_true", help="continue without columns, defaults, sequences or indexes"
    )
    sub.add_argument(
        "--verified-within",
        default="1d",
        metavar="TIME",
        help="maximum age of a verification, at least 1m (default: 1d)",
    )
    sub.add_argument("--json", action="store_true", help="print the report as one JSON document")
    request_options.add_size(sub)
    sub.set_defaults(act=_command("cutover"), id=None)


def _console(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "console", "serve a web page that shows the Replicators of the manifests")
    sub.add_argument(
        "--listen", default="127.0.0.1:8650", metavar="HOST:PORT", help="address (default: 127.0.0.1:8650)"
    )
    sub.add_argument("--token-file", type=Path, help="file with the token of the page (default: a new one, printed)")
    sub.add_argument("--allow-actions", action="store_true", help="allow snapshots, verifications, cuts, suspending")
    sub.set_defaults(act=_command("console"))


def _cut(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "cut", "keep all tables readable as they were at one moment of the source")
    sub.add_argument("cut", nargs="?", metavar="NAME", help="name of the cut (default: the time, 20261128_120000)")
    sub.add_argument("--drop", action="store_true", help="drop the cut: its versions are no longer kept")
    sub.add_argument("--wait", default="60s", metavar="TIME", help="wait at most this long for all tables")
    sub.add_argument("--json", action="store_true", help="print the result as one JSON document")
    sub.set_defaults(act=_command("cut"))
    sub = _verb(verbs, "cuts", "show the cuts, and which tables are not in them")
    sub.add_argument("--json", action="store_true", help="print the cuts with the versions of all tables as JSON")
    sub.set_defaults(act=_command("cuts"))


def _rewind(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "rewind", "take the tables of a lake back to a cut while the process is stopped")
    moment = sub.add_mutually_exclusive_group(required=True)
    moment.add_argument("--to-cut", metavar="NAME", help="the cut with this name")
    moment.add_argument("--to-time", metavar="TIME", help="the last cut at or before it (2026-11-28T12:00:00Z)")
    moment.add_argument("--to-record", metavar="RECORD", type=int, help="the cut at this record of the change log")
    sub.add_argument(
        "--tables", nargs="+", metavar="PATTERN", default=["*.*"], help="schema.table, * and ? allowed (default: all)"
    )
    sub.set_defaults(act=_command("rewind"))


if __name__ == "__main__":
    entry()
