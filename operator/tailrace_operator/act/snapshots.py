"""Sends drivers the SnapshotRequests, the spec to use, and the order to end: the verbs of `tailrace.contract.driver`,
with the token."""

from urllib.parse import quote

import aiohttp
from pydantic import ValidationError

from tailrace.contract.driver import (
    DROP,
    SNAPSHOTS,
    SPEC,
    DropAnswer,
    DropBody,
    Problem,
    SnapshotAnswer,
    SnapshotBody,
    SpecBody,
    SuspendBody,
)
from tailrace.contract.resources import DeletionPolicy, ReplicatorSpec, SnapshotRequestSpec
from tailrace_operator.observe.drivers import address, exchange, read, silence
from tailrace_operator.observe.model import DriverAnswer, ObservedDrop

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
        return await self._call("PUT", snapshot_id, SnapshotBody(name=name, spec=spec).to_json())

    async def pause(self, snapshot_id: str, suspend: bool) -> DriverAnswer:
        body = SuspendBody(suspend=suspend).model_dump_json(by_alias=True)
        return await self._call("PUT", f"{snapshot_id}/suspend", body)

    async def cancel(self, snapshot_id: str) -> DriverAnswer:
        return await self._call("DELETE", snapshot_id, None)

    async def change_spec(self, generation: int, spec: ReplicatorSpec) -> DriverAnswer:
        code, raw = await self._send("PUT", SPEC, SpecBody(generation=generation, spec=spec).to_json())
        problem = raw if isinstance(raw, Problem) else None
        return DriverAnswer(accepted=problem is None, problem=problem, code=code)

    async def drop(self, policy: DeletionPolicy, now: float) -> ObservedDrop:
        code, raw = await self._send("POST", DROP, DropBody.of(policy).to_json())
        if isinstance(raw, Problem):
            return ObservedDrop(now, problem=raw, code=code)
        try:
            return ObservedDrop(now, read(DropAnswer, raw), code=code)
        except ValueError:
            return ObservedDrop(now, problem=_unknown(code), code=code)

    async def _call(self, method: str, path: str, body: str | None) -> DriverAnswer:
        code, raw = await self._send(method, f"{SNAPSHOTS}/{quote(path)}", body)
        if isinstance(raw, Problem):
            return DriverAnswer(accepted=False, problem=raw, code=code)
        try:
            record = read(SnapshotAnswer, raw).record if raw not in (b"", b"{}") else None
        except ValueError:
            return DriverAnswer(accepted=False, problem=_unknown(code), code=code)
        return DriverAnswer(accepted=True, record=record, code=code)

    async def _send(self, method: str, path: str, body: str | None) -> tuple[int, bytes | Problem]:
        """Code and body of a success, else the problem; code 0: there was no answer."""
        url, headers = self._base + path, self._headers
        try:
            code, raw = await exchange(
                self._session, method, url, seconds=SECONDS, limit=MAX_BYTES, body=body, headers=headers
            )
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            why = silence(error, SECONDS)
            return 0, Problem(name="DriverUnreachable", message=f"the driver does not answer: {why}")
        if code == 200:
            return code, raw
        try:
            return code, Problem.model_validate_json(raw)
        except ValidationError:
            return code, _unknown(code)


def _unknown(code: int) -> Problem:
    return Problem(name="DriverAnswer", message=f"the driver answered {code} with something unknown.")
