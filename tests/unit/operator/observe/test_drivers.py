"""What others send may be long, come in pieces, or hold odd numbers: it is read whole and ends nothing."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import observed as world
from support.observed import LIMITS, NOW, meta, pod, reported, request, running
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace.contract.status import (
    ApplyStatus,
    CaptureStatus,
    Fault,
    SnapshotStatus,
    SnapshotTableProgress,
    Status,
    TableStatus,
)
from tailrace_operator.act import snapshots
from tailrace_operator.act.snapshots import DriverVerbs
from tailrace_operator.decide import replicator
from tailrace_operator.decide import request as requests
from tailrace_operator.kube import Document, Kube, Where
from tailrace_operator.observe import drivers, parse
from tailrace_operator.observe.drivers import Drivers
from tailrace_operator.observe.model import FINALIZER, ObservedDriver
from tailrace_operator.observe.watch import Watch, WatchSink
from tailrace_operator.resources import names
from tailrace_operator.resources import settings as resource_settings
from tailrace_operator.status.load import dump
from tailrace_operator.status.models import ReplicatorStatus, SnapshotRequestStatus


async def served(pieces: Sequence[bytes], ask: Callable[[str], Awaitable[Any]]) -> Any:
    """What `ask` makes of a server at the URL that it gets, which sends the body in these pieces."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = sum(map(len, pieces))
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            for piece in (head.encode(), *pieces):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        found = await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await ended.wait()
    return found


def in_pieces(document: str) -> list[bytes]:
    raw = document.encode()
    return [raw[: len(raw) // 2], raw[len(raw) // 2 :]]


def test_a_drivers_long_answer_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tuple(TableStatus(name=f"public.table_{n:05}", state="REPLICATING") for n in range(3000))

    async def ask(url: str) -> ObservedDriver:
        monkeypatch.setattr(drivers, "address", lambda ip: url)
        async with aiohttp.ClientSession() as session:
            return await Drivers(session).ask("team", "shop", pod(), NOW)

    observed = asyncio.run(served(in_pieces(reported(tables=tables).model_dump_json(by_alias=True)), ask))
    assert observed.error == ""
    assert len(observed.status.tables) == 3000


def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "MAX_BYTES", 1000)

    async def ask(url: str) -> ObservedDriver:
        monkeypatch.setattr(drivers, "address", lambda ip: url)
        async with aiohttp.ClientSession() as session:
            return await Drivers(session).ask("team", "shop", pod(), NOW)

    observed = asyncio.run(served([b" " * 900] * 3, ask))
    assert observed.status is None and "1000 bytes" in observed.error


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(f'{{"tables":[{"{}," * 60_000}{{}}]}}', id="a crowd"),
        pytest.param(" " * (9 << 20), id="nine MiB"),
    ],
)
def test_an_answer_that_is_too_large_is_named(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    observed = asyncio.run(served([odd.encode()], partial(_asked, monkeypatch)))
    assert observed.status is None and observed.error.startswith("AnswerTooLarge: ")


def test_the_answer_of_two_thousand_tables_that_all_fail_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(name="SourceUnreachable", message="m" * 250, fix="f" * 120, where="source")
    tables_of = [f"a_schema.a_table_with_quite_a_long_name_{n:05}" for n in range(2000)]
    tables = tuple(TableStatus(name=name, state="FAILING", fault=fault) for name in tables_of)
    progress = tuple(SnapshotTableProgress(name=name, running=("(1, 2]",) * 2, fault=fault) for name in tables_of)
    snapshots = tuple(SnapshotStatus(id=str(n), reason="request", state="Running", tables=progress) for n in range(2))
    answer = reported(tables=tables, snapshots=snapshots).model_dump_json(by_alias=True)
    observed = asyncio.run(served(in_pieces(answer), partial(_asked, monkeypatch)))
    assert observed.error == "" and len(observed.status.tables) == 2000


def test_an_answer_is_read_while_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop renews the lease. Here reading ends only when the loop has taken a turn meanwhile."""
    begun, turned = threading.Event(), threading.Event()

    def slowly(kind: Any, raw: bytes) -> Any:
        begun.set()
        assert turned.wait(10), "the loop waits for the answer to be read"
        return drivers_read(kind, raw)

    async def ask(url: str) -> ObservedDriver:
        task = asyncio.create_task(_asked(monkeypatch, url))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        turned.set()
        return await task

    drivers_read = drivers.read
    monkeypatch.setattr(drivers, "read", slowly)
    observed = asyncio.run(served(in_pieces(reported().model_dump_json(by_alias=True)), ask))
    assert observed.error == "" and observed.status is not None


async def _asked(monkeypatch: pytest.MonkeyPatch, url: str) -> ObservedDriver:
    monkeypatch.setattr(drivers, "address", lambda ip: url)
    async with aiohttp.ClientSession() as session:
        return await Drivers(session).ask("team", "shop", pod(), NOW)


def test_what_is_nested_a_thousand_times_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these is in a tenant's hands: an answer, a termination message, a ConfigMap."""
    deep = "[" * 4000
    observed = asyncio.run(served([deep.encode()], partial(_asked, monkeypatch)))
    assert observed.status is None and "recursion" in observed.error
    ended = {"exitCode": 1, "message": deep}
    container = {"name": "tailrace", "state": {"terminated": ended}}
    document = {"metadata": {"name": "p", "uid": "u"}, "status": {"containerStatuses": [container]}}
    found = parse.pod(document).ended
    assert found is not None and found.log_line.startswith("[[")
    assert parse.report(document) is None
    assert resource_settings.spec_of({names.MANIFEST_KEY: deep}) is None


def test_a_long_answer_to_a_verb_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"id": "x", "record": 7, "tables": [f"public.table_{n:05}" for n in range(3000)]}

    async def ask(url: str) -> Any:
        monkeypatch.setattr(snapshots, "address", lambda ip: url)
        async with aiohttp.ClientSession() as session:
            spec = SnapshotRequestSpec(replicator="shop", tables=("public.*",))
            return await DriverVerbs(session, "", "secret").submit("x", "again", spec)

    observed = asyncio.run(served(in_pieces(json.dumps(answer)), ask))
    assert (observed.accepted, observed.record) == (True, 7)


def test_an_object_of_any_length_does_not_stop_a_watch() -> None:
    """A Replicator with many patterns has a ConfigMap of a megabyte."""
    text = "x" * 1_000_000
    found: list[str] = []

    def event(name: str, version: str) -> bytes:
        head = {"name": name, "namespace": "team", "resourceVersion": version}
        return json.dumps({"type": "MODIFIED", "object": {"metadata": head, "data": text}}).encode() + b"\n"

    class Long:
        def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
            self.url, self.session = url, session

        async def call(self, method: str, where: Where, **given: Any) -> Document:
            return {"metadata": {"resourceVersion": "1"}, "items": []}

        async def open(self, method: str, where: Where, **given: Any) -> aiohttp.ClientResponse:
            return await self.session.get(self.url)

    async def ask(url: str) -> None:
        sink = WatchSink(lambda all: None, lambda d: found.append(d["metadata"]["name"]), lambda d: None)
        async with aiohttp.ClientSession() as session:
            task = asyncio.create_task(Watch(cast(Kube, Long(url, session)), "ConfigMap", None, sink).run())
            await asyncio.sleep(0.4)
            task.cancel()

    asyncio.run(served(in_pieces((event("long", "2") + event("next", "3")).decode()), ask))
    assert found[:2] == ["long", "next"]


# ---- a driver of any image may say anything ----

whole = st.integers(-(2**70), 2**70)
real = st.floats() | st.sampled_from([1e14, 1e300, -1.0])
words = st.text(max_size=5) | st.sampled_from(["ü" * 2000])
faults = st.none() | st.builds(Fault, name=words, message=words, fix=words, since=real, count=whole)
odd_tables = st.builds(
    TableStatus, name=words, state=st.sampled_from(["FAILING", "REPLICATING"]), lag_seconds=real, fault=faults
)
odd_progress = st.builds(
    SnapshotTableProgress, name=words, chunks_done=whole, rows_done=whole, rows_estimated=whole, fault=faults
)
odd_snapshots = st.builds(
    SnapshotStatus,
    id=st.just("22222222-2222-4222-8222-222222222222"),
    reason=st.sampled_from(["request", "initial"]),
    state=st.sampled_from(["Running", "Completed"]),
    tables_done=whole,
    tables_total=whole,
    rows_done=whole,
    rows_estimated=whole,
    rows_per_second=real,
    seconds_left=st.none() | real,
    tables=st.lists(odd_progress, max_size=2).map(tuple),
    fault=faults,
)


@st.composite
def odd(draw: st.DrawFn) -> Status:
    capture = CaptureStatus(
        position=draw(words), lag_seconds=draw(real), lag_bytes=draw(whole), retained_bytes=draw(whole),
        rows_per_second=draw(real), waiting_for=draw(words),
    )  # fmt: skip
    return reported(
        message=draw(words),
        capture=capture,
        apply=ApplyStatus(lag_seconds=draw(real), record=draw(whole), rows_per_second=draw(real)),
        tables_total=draw(whole),
        tables=tuple(draw(st.lists(odd_tables, max_size=2))),
        snapshots=tuple(draw(st.lists(odd_snapshots, max_size=2))),
        fault=draw(faults),
    )


@settings(max_examples=60, deadline=None)
@given(odd())
def test_whatever_a_driver_says_becomes_a_status_that_can_be_written(answer: Status) -> None:
    """A number that ends the operator would end it for all Replicators."""
    written = dump(replicator.decide(running(answer), LIMITS).status)
    json.dumps(written, allow_nan=False)
    ReplicatorStatus.model_validate(written)


@settings(max_examples=60, deadline=None)
@given(odd_snapshots)
def test_whatever_a_driver_says_of_a_snapshot_becomes_a_status_that_can_be_written(answer: SnapshotStatus) -> None:
    observed = request(meta=meta(name="again", finalizers=(FINALIZER,)), snapshot=answer)
    written = dump(requests.decide(observed, LIMITS).status)
    json.dumps(written, allow_nan=False)
    SnapshotRequestStatus.model_validate(written)


def test_a_drivers_last_words_may_be_any() -> None:
    end = world.ended(1, Fault(name="E" * 3000, message="message" * 3000, fix="fix" * 3000, count=10**30, since=1e300))
    dead = pod(running_since=None, ready=False, ended=end)
    decision = replicator.decide(replace(running(), pods=(dead,), driver=ObservedDriver()), LIMITS)
    ReplicatorStatus.model_validate(dump(decision.status))
