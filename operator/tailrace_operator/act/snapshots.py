"""Tells drivers what SnapshotRequests want: the verbs of `tailrace.contract.driver`, with the bearer token."""

from urllib.parse import quote

import aiohttp
from pydantic import ValidationError

from tailrace.contract.driver import SNAPSHOTS, Problem, SnapshotAnswer, SnapshotBody, SuspendBody
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace_operator.observe.drivers import address, whole
from tailrace_operator.observe.model import Answer

SECONDS = 30.0
"""A snapshot is accepted only when the journal holds its plan."""
MAX_BYTES = 4 << 20
"""Names of ten thousand tables."""


class DriverVerbs:
    """One driver at the address of its pod."""

    def __init__(self, session: aiohttp.ClientSession, ip: str, token: str) -> None:
        self._session = session
        self._url = address(ip) + SNAPSHOTS
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    async def take(self, snapshot_id: str, name: str, spec: SnapshotRequestSpec) -> Answer:
        return await self._call("PUT", snapshot_id, SnapshotBody(name=name, spec=spec).model_dump_json(by_alias=True))

    async def pause(self, snapshot_id: str, suspend: bool) -> Answer:
        body = SuspendBody(suspend=suspend).model_dump_json(by_alias=True)
        return await self._call("PUT", f"{snapshot_id}/suspend", body)

    async def cancel(self, snapshot_id: str) -> Answer:
        return await self._call("DELETE", snapshot_id, None)

    async def _call(self, method: str, path: str, body: str | None) -> Answer:
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        url = f"{self._url}/{quote(path)}"
        try:
            async with self._session.request(
                method, url, data=body, headers=self._headers, timeout=timeout
            ) as response:
                return _answer(response.status, await whole(response, MAX_BYTES))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            problem = Problem(name="DriverUnreachable", message=f"the driver does not answer: {error!r}"[:300])
            return Answer(accepted=False, problem=problem)


def _answer(code: int, raw: bytes) -> Answer:
    try:
        if code == 200:
            record = SnapshotAnswer.model_validate_json(raw).record if raw not in (b"", b"{}") else None
            return Answer(accepted=True, record=record, code=code)
        return Answer(accepted=False, problem=Problem.model_validate_json(raw), code=code)
    except ValidationError:
        problem = Problem(name="DriverAnswer", message=f"the driver answered {code} with something unknown.")
        return Answer(accepted=False, problem=problem, code=code)
