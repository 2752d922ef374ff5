"""Tells drivers what SnapshotRequests want, and to go: the verbs of `tailrace.contract.driver`, with the token."""

import json
from urllib.parse import quote

import aiohttp
from pydantic import ValidationError

from tailrace.contract.driver import (
    DROP,
    SNAPSHOTS,
    DropAnswer,
    DropBody,
    Problem,
    SnapshotAnswer,
    SnapshotBody,
    SuspendBody,
)
from tailrace.contract.resources import SnapshotRequestSpec
from tailrace_operator.observe.drivers import address, whole
from tailrace_operator.observe.model import DriverAnswer, ObservedDrop
from tailrace_operator.status.load import known

SECONDS = 30.0
"""A snapshot is accepted only when the journal holds its plan."""
MAX_BYTES = 4 << 20
"""Names of ten thousand tables."""


class DriverVerbs:
    """One driver at the address of its pod."""

    def __init__(self, session: aiohttp.ClientSession, ip: str, token: str) -> None:
        self._session = session
        self._base = address(ip)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    async def submit(self, snapshot_id: str, name: str, spec: SnapshotRequestSpec) -> DriverAnswer:
        return await self._call("PUT", snapshot_id, SnapshotBody(name=name, spec=spec).model_dump_json(by_alias=True))

    async def pause(self, snapshot_id: str, suspend: bool) -> DriverAnswer:
        body = SuspendBody(suspend=suspend).model_dump_json(by_alias=True)
        return await self._call("PUT", f"{snapshot_id}/suspend", body)

    async def cancel(self, snapshot_id: str) -> DriverAnswer:
        return await self._call("DELETE", snapshot_id, None)

    async def drop(self, data: bool, now: float) -> ObservedDrop:
        code, raw = await self._send("POST", DROP, DropBody(data=data).model_dump_json(by_alias=True))
        if isinstance(raw, Problem):
            return ObservedDrop(now, problem=raw, code=code)
        try:
            return ObservedDrop(now, known(DropAnswer, json.loads(raw)), code=code)
        except (ValidationError, ValueError):
            return ObservedDrop(now, problem=_unknown(code), code=code)

    async def _call(self, method: str, path: str, body: str | None) -> DriverAnswer:
        code, raw = await self._send(method, f"{SNAPSHOTS}/{quote(path)}", body)
        if isinstance(raw, Problem):
            return DriverAnswer(accepted=False, problem=raw, code=code)
        try:
            record = SnapshotAnswer.model_validate_json(raw).record if raw not in (b"", b"{}") else None
        except ValidationError:
            return DriverAnswer(accepted=False, problem=_unknown(code), code=code)
        return DriverAnswer(accepted=True, record=record, code=code)

    async def _send(self, method: str, path: str, body: str | None) -> tuple[int, bytes | Problem]:
        """Code and body of a success, else the problem; code 0: there was no answer."""
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        try:
            async with self._session.request(
                method, self._base + path, data=body, headers=self._headers, timeout=timeout
            ) as response:
                code, raw = response.status, await whole(response, MAX_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return 0, Problem(name="DriverUnreachable", message=f"the driver does not answer: {error!r}"[:300])
        if code == 200:
            return code, raw
        try:
            return code, Problem.model_validate_json(raw)
        except ValidationError:
            return code, _unknown(code)


def _unknown(code: int) -> Problem:
    return Problem(name="DriverAnswer", message=f"the driver answered {code} with something unknown.")
