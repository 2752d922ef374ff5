"""The console script. Imports nothing before it is called: Ctrl-C while Python reads the program's modules ends it
silently, as it does other programs, and not with a traceback of somebody's import.
"""

import signal


def entry() -> None:
    """Does not return: see `main.entry`."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tailrace.cli import main

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    main.entry()
