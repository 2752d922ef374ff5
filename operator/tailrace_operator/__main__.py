"""The console script `tailrace-operator`. Exit codes: 0 stopped, 2 usage, 1 anything else (Kubernetes restarts it)."""

import asyncio
import os
import sys
from collections.abc import Sequence

from tailrace.errors import TailraceError
from tailrace_operator import logs, settings
from tailrace_operator.handlers.operator import serve


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        chosen = settings.parse(arguments, os.environ)
        logs.configure(chosen.log_level)
        asyncio.run(serve(chosen))
    except TailraceError as error:
        return _exit_code(error)
    except BaseExceptionGroup as group:
        # Parts run side by side: the first that failed is the cause, the others were cancelled.
        mine = group.subgroup(TailraceError)
        if mine is None:
            raise
        return _exit_code(_first(mine))
    return 0


def _exit_code(error: TailraceError) -> int:
    print(f"tailrace-operator: {error}", file=sys.stderr)
    return error.exit_code


def _first(group: BaseExceptionGroup[TailraceError]) -> TailraceError:
    found = group.exceptions[0]
    return found if isinstance(found, TailraceError) else _first(found)


def entry() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
