"""Cuts as `tailrace cut` and `tailrace cuts` print them."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from tailrace.contract.driver import CutReport


def lines(cut: CutReport) -> Iterator[str]:
    yield f"{cut.name}: {_summary(cut)}; record {cut.record}, position {cut.position}, {_commits(cut)}"
    for table in cut.tables:
        if table.why is not None:
            yield f"  {table.name}: not in it: {table.why}"
        else:
            yield f"  {table.name}: " + ("passed (no version)" if table.version is None else f"version {table.version}")


def listing(cuts: Sequence[CutReport]) -> Iterator[str]:
    if not cuts:
        yield "no cuts"
    for cut in cuts:
        yield f"{cut.name}: {_summary(cut)}; record {cut.record}, position {cut.position}, {_commits(cut)}"
        missing = [table for table in cut.tables if table.why is not None]
        yield from (f"  {table.name}: not in it: {table.why}" for table in missing)


def _summary(cut: CutReport) -> str:
    if cut.complete:
        return "complete"
    return "under way" if cut.waits else "incomplete"


def _commits(cut: CutReport) -> str:
    if cut.commit_time is None:
        return "before any commit"
    return f"commits up to {datetime.fromtimestamp(cut.commit_time, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
