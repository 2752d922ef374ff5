"""Answers that wait for one Replicator hold up nothing else, and commands have places elsewhere."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import pytest
from pydantic import BaseModel
from starlette.applications import Starlette

from tailrace.cli.console import places
from tailrace.cli.console.app import ConsoleApp, application
from tailrace.contract.console import ActionAnswer, ConsoleAssessment, ConsoleFleet
from tailrace.contract.driver import CutList

MANY = 2 * places.MOST_ANSWERS
ASSESSED = ConsoleAssessment(ready=True, lines=(), tables=(), seconds=0, include=())
Answer = TypeVar("Answer", bound=BaseModel)


class Answers:
    """A console whose Replicators called `silent` do not answer, and whose commands do not end, until they may."""

    def __init__(self) -> None:
        self.shown = self
        self.realm, self.token_fix = "kubernetes", ""
        self.ended = threading.Event()
        self.waiting: list[str] = []

    def admits(self, caller: str) -> bool:
        return True

    def fleet(self, caller: str) -> ConsoleFleet:
        return ConsoleFleet(version="1", actions=True, realm="kubernetes", at=0, replicators=())

    def cuts(self, caller: str, name: str) -> CutList:
        return self._late(name, CutList(cuts=())) if "silent" in name else CutList(cuts=())

    def assessment(self, caller: str, name: str) -> ConsoleAssessment:
        return self._late(name, ASSESSED)

    def act(self, caller: str, name: str, body: Any) -> ActionAnswer:
        answer = ActionAnswer(done=not body.preview, message="done", command="")
        return answer if body.preview or body.verb != "cut" else self._late(name, answer)

    def _late(self, name: str, answer: Answer) -> Answer:
        self.waiting.append(name)
        assert self.ended.wait(60)
        return answer


class Client:
    """Sends requests to the application, without a connection."""

    def __init__(self, answers: Answers) -> None:
        self.app: Starlette = application(cast(ConsoleApp, answers))

    async def send(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Code and document."""
        sent: list[dict[str, Any]] = []
        headers = [(b"authorization", b"Bearer token"), (b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "method": "GET" if body is None else "POST",
            "path": f"/api/v1/{path}",
            "root_path": "",
            "query_string": b"",
            "headers": headers,
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

        async def take(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, take)
        return sent[0]["status"], json.loads(b"".join(m.get("body", b"") for m in sent))


@asynccontextmanager
async def client(answers: Answers) -> AsyncIterator[tuple[Client, asyncio.TaskGroup]]:
    """All that was asked in the group has an answer at the end."""
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        try:
            yield Client(answers), group
        finally:
            answers.ended.set()


async def waits(answers: Answers, count: int) -> None:
    while len(answers.waiting) < count:
        await asyncio.sleep(0.01)


def test_silent_drivers_of_one_namespace_hold_up_no_other() -> None:
    async def history() -> None:
        answers = Answers()
        async with client(answers) as (asks, group):
            for number in range(MANY):
                group.create_task(asks.send(f"replicators/bad:silent-{number % 5}/cuts"))
            await waits(answers, places.MOST_OF_NAMESPACE)
            assert (await asks.send("fleet"))[0] == 200
            assert (await asks.send("replicators/good:orders/cuts"))[0] == 200
            assert len(answers.waiting) == places.MOST_OF_NAMESPACE
        assert len(answers.waiting) == MANY, "the others had their turn"

    asyncio.run(history())


def test_a_silent_driver_holds_up_no_other_of_its_namespace() -> None:
    async def history() -> None:
        answers = Answers()
        async with client(answers) as (asks, group):
            for _ in range(MANY):
                group.create_task(asks.send("replicators/shop:silent/cuts"))
            await waits(answers, places.MOST_OF_REPLICATOR)
            assert (await asks.send("replicators/shop:orders/cuts"))[0] == 200
            assert len(answers.waiting) == places.MOST_OF_REPLICATOR

    asyncio.run(history())


CUT = {"verb": "cut", "cut": "noon"}


@pytest.mark.parametrize(("path", "body"), [("assessment", None), ("actions", CUT)])
def test_commands_are_bounded_and_hold_up_no_answer(path: str, body: dict[str, Any] | None) -> None:
    async def history() -> None:
        answers = Answers()
        async with client(answers) as (asks, group):

            async def commands(namespace: str, replicators: int) -> list[tuple[int, Any]]:
                """The answers of those that were refused."""
                before = len(answers.waiting)
                tasks = [
                    group.create_task(asks.send(f"replicators/{namespace}:r{number % replicators}/{path}", body))
                    for number in range(6)
                ]
                while not any(task.done() for task in tasks) or len(answers.waiting) == before:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0)
                return [task.result() for task in tasks if task.done()]

            refused = await commands("one", 1)
            assert len(refused) == 6 - places.MOST_COMMANDS_OF_REPLICATOR
            fix = "Wait until one has ended."
            problem = {"name": "Retry", "message": "2 commands of one:r0 are under way", "fix": fix}
            assert refused[0] == (503, problem)
            refused = await commands("several", 6)
            assert len(refused) == 6 - places.MOST_COMMANDS_OF_NAMESPACE
            assert refused[0][1]["message"] == "4 commands in namespace several are under way"
            for number in range(3):
                await commands(f"more-{number}", 6)
            assert len(answers.waiting) == places.MOST_COMMANDS
            found = await asks.send(f"replicators/last:r/{path}", body)
            assert found == (503, {"name": "Retry", "message": "16 commands are under way", "fix": fix})

            # What needs no command waits for none, of the same Replicator and of others.
            for name in ("one:r0", "last:r"):
                assert (await asks.send(f"replicators/{name}/cuts"))[0] == 200
                assert (await asks.send(f"replicators/{name}/actions", {**CUT, "preview": True}))[0] == 200
                assert (await asks.send(f"replicators/{name}/actions", {"verb": "suspend"}))[0] == 200
        assert (await asks.send(f"replicators/last:r/{path}", body))[0] == 200, "the places are free again"

    asyncio.run(history())
