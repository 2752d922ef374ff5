"""The console scripts. Imports nothing before one is called: Ctrl-C while Python reads the program's modules ends it
silently, as it does other programs, and not with the traceback of an import.
"""

import importlib
import signal


def entry() -> None:
    """`tailrace`. Does not return: see `main.entry`."""
    _run("tailrace.cli.main")


def kubectl() -> None:
    """`kubectl tailrace`. Does not return."""
    _run("tailrace.cli.kubectl.main")


def _run(module: str) -> None:
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    main = importlib.import_module(module)

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    main.entry()
