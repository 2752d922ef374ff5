"""The command line `kubectl tailrace`: parses, calls and turns errors into exit codes, which are those of `tailrace`.

kubectl runs `kubectl-tailrace` for it, which pyproject.toml names. It needs none of the extras.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tailrace import __version__
from tailrace.cli import request_options
from tailrace.cli.kubectl import PROGRAM
from tailrace.errors import TailraceError
from tailrace.logs import visible

EXAMPLES = """examples:
  kubectl tailrace status                        all Replicators of the namespace, -A: of all namespaces
  kubectl tailrace status shop --watch           one of them in full, updated until Ctrl-C
  kubectl tailrace logs shop --follow            the driver's log
  kubectl tailrace snapshot shop --tables 'public.orders' --where "region = 'eu'" --wait
  kubectl tailrace pause snapshot orders-again   chunks being read are finished, no new one begins
  kubectl tailrace doctor shop                   check source and target from where the driver runs
  kubectl tailrace diff shop -f new.yaml         show the effect of a changed manifest without applying it
  kubectl tailrace restart shop                  restart the driver, also after Fenced and RestartLimitExceeded
  kubectl tailrace recover shop                  after PositionLost: read every table again

exit codes: 0 done, 2 usage, or a name or value that is wrong, 1 anything else; doctor and diff: those of `tailrace`
"""
MANIFEST = "manifest (YAML), - for standard input; may be repeated"
PAUSED = {
    "replicator": "everything: the driver is shut down (spec.suspend)",
    "apply": "writing to the target; changes are still captured (spec.apply.suspend)",
    "reconciliation": "the operator's changes to this Replicator's objects; streams keep running (an annotation)",
    "snapshot": "a SnapshotRequest: chunks being read are finished (its spec.suspend)",
}
"""The parts that can be paused, each with its meaning."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        return int(options.act(options))
    except TailraceError as error:
        print(visible(f"{PROGRAM}: {error}"), file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # its reader has left: nothing remains to be flushed
        return 1
    except KeyboardInterrupt:
        if options.endless(options):
            return 0
        print(f"{PROGRAM}: interrupted before it was done", file=sys.stderr)
        return 1


def entry() -> None:
    sys.exit(main())


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    """Imports the command when it is called: `--help` prints without delay."""

    def act(options: argparse.Namespace) -> int:
        from tailrace.cli.kubectl import commands

        return int(getattr(commands, name)(options))

    return act


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Replicators and SnapshotRequests on a cluster.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    top.set_defaults(endless=lambda _: False)
    verbs = top.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    _status(verbs)
    _tables(verbs)
    _logs(verbs)
    _snapshot(verbs)
    for verb, text in (("pause", "pause"), ("resume", "continue what was paused:")):
        sub = _verb(verbs, verb, f"{text} a Replicator, its target, its operator or a snapshot", "change_pause")
        sub.formatter_class = argparse.RawDescriptionHelpFormatter
        sub.epilog = "\n".join(f"  {what:15} {meaning}" for what, meaning in PAUSED.items())
        sub.add_argument("what", choices=PAUSED, help="see below")
        sub.add_argument("name", metavar="NAME", help="name of the Replicator; with `snapshot`, of the SnapshotRequest")
    sub = _verb(verbs, "doctor", "check source and target from where the driver runs", "doctor")
    sub.add_argument("replicator", metavar="REPLICATOR")
    sub.add_argument("--json", action="store_true", help="print the whole report as one JSON document")
    sub = _verb(verbs, "diff", "show what a changed manifest would restart, read again or refuse", "diff")
    sub.add_argument("replicator", metavar="REPLICATOR")
    sub.add_argument("-f", "--file", type=Path, action="append", required=True, metavar="FILE", help=MANIFEST)
    sub.add_argument("--json", action="store_true", help="print the result as one JSON document")
    sub = _verb(verbs, "restart", "restart the driver (spec.restartNonce)", "restart")
    sub.add_argument("replicator", metavar="REPLICATOR")
    sub = _verb(verbs, "recover", "after PositionLost: read every table again (spec.recover)", "recover")
    sub.add_argument("replicator", metavar="REPLICATOR")
    return top


def _verb(
    verbs: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, act: str
) -> argparse.ArgumentParser:
    sub = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    sub.add_argument("-n", "--namespace", help="namespace (default: the context's)")
    sub.add_argument("--context", help="context of the kubeconfig (default: the current one)")
    sub.set_defaults(act=_command(act))
    return sub


def _status(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "status", "show state, lag, snapshots and conditions", "status")
    sub.add_argument("replicator", nargs="?", metavar="REPLICATOR", help="default: one line for each")
    sub.add_argument("-A", "--all-namespaces", action="store_true", help="Replicators of all namespaces")
    sub.add_argument("-w", "--watch", action="store_true", help="show every change, until Ctrl-C")
    sub.add_argument(
        "--json", action="store_true", help="print the resources as one JSON document; with --watch one per line"
    )
    sub.set_defaults(endless=lambda options: options.watch)


def _tables(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "tables", "show tables that are stopped, failing or behind; with --all every table", "tables")
    sub.add_argument("replicator", metavar="REPLICATOR")
    sub.add_argument("--all", action="store_true", help="ask the driver, which needs the right to exec into its pod")
    sub.add_argument("--json", action="store_true", help="print one JSON document")


def _logs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "logs", "print the driver's log", "logs")
    sub.add_argument("replicator", metavar="REPLICATOR")
    sub.add_argument("-f", "--follow", action="store_true", help="continue until Ctrl-C or the driver's end")
    sub.add_argument("-p", "--previous", action="store_true", help="log of the previous container")
    sub.add_argument("--tail", type=int, metavar="N", help="only the last N lines")
    sub.add_argument("--json", action="store_true", help="print the unchanged JSON documents, one per line")
    sub.set_defaults(endless=lambda options: options.follow)


def _snapshot(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    sub = _verb(verbs, "snapshot", "create a SnapshotRequest: read tables, or some of their rows, again", "snapshot")
    sub.add_argument("replicator", metavar="REPLICATOR")
    sub.add_argument("--tables", nargs="+", required=True, metavar="PATTERN", help="schema.table, * and ? allowed")
    request_options.add_rows(sub)
    what = "start the tables over: all rows are read, then the targets are replaced"
    sub.add_argument("--resync", action="store_true", help=what)
    modes = sub.add_mutually_exclusive_group()
    what = "compare the copies with the source instead of reading into them"
    modes.add_argument("--verify", dest="mode", action="store_const", const="Verify", default="Read", help=what)
    what = "the same, and read rows that differ again"
    modes.add_argument("--repair", dest="mode", action="store_const", const="Repair", help=what)
    request_options.add_sample(sub)
    request_options.add_size(sub)
    sub.add_argument("--id", help="name of the SnapshotRequest; repeating it with the same content does nothing")
    sub.add_argument("--wait", action="store_true", help="wait until it has ended; exit code 1 if it did not complete")
    sub.add_argument(
        "--timeout", default="0s", metavar="TIME", help="with --wait: at most this long (30s, 2h; 0s: no limit)"
    )
