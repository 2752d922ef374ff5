"""Speaks `tailrace.contract.driver` with a running driver; used by the command line."""

import http.client
import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from tailrace.contract.driver import (
    CUTS,
    DROP,
    HISTORY,
    SNAPSHOTS,
    SPEC,
    STATUS,
    TABLES,
    CutList,
    CutReport,
    DropAnswer,
    DropBody,
    Problem,
    SnapshotAnswer,
    SnapshotBody,
    SpecAnswer,
    SpecBody,
    SuspendBody,
    VerificationReport,
)
from tailrace.contract.history import LastHour, TableView
from tailrace.contract.resources import DeletionPolicy
from tailrace.contract.status import Status
from tailrace.driver.process.run_dir import NotRunning, RunFolder
from tailrace.errors import InvalidManifest, RemovalUnconfirmed, Retry, TailraceError

Document = TypeVar("Document", bound=BaseModel)
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Past any proxy of the environment: the driver is on this machine, and the token concerns no other machine."""
TIMEOUT = 60.0
"""A snapshot is accepted only when the journal holds it; capture may be restarting just now."""


LOOK_PAUSE = 1.0
"""Between two questions whether the source has looked up a request's keys."""


class DriverRefused(TailraceError):
    """The running driver did not do what was asked."""


class DriverSilent(DriverRefused):
    """It runs, or the connection would have been refused; what was asked for may still happen."""

    usual_fix = "The source or the storage may hang: `tailrace status` says what is waited for. Then ask again."


class DriverClient:
    def __init__(self, url: str, token_file: Path, timeout: float | None = None) -> None:
        """`timeout`: seconds; None: `TIMEOUT`."""
        self._url = url
        self._token_file = token_file
        self._timeout = TIMEOUT if timeout is None else timeout

    @classmethod
    def of(cls, folder: RunFolder, storage: str | None = None) -> "DriverClient":
        """`storage`: the location of the change log that the driver must have; None: whatever it has."""
        return cls(*folder.server(storage))

    def status(self) -> Status:
        return self._document(Status, STATUS)

    def history(self) -> LastHour:
        return self._document(LastHour, HISTORY)

    def table(self, name: str) -> TableView:
        return self._document(TableView, f"{TABLES}/{quote(name, safe='')}")

    def _document(self, kind: type[Document], path: str) -> Document:
        answer = self._call("GET", path)
        try:
            return kind.model_validate_json(answer)
        except ValidationError as error:
            raise DriverRefused(
                f"the server at {self._url} is not a driver of this version", "Use the version that runs there."
            ) from error

    def request(self, snapshot_id: str, body: SnapshotBody) -> SnapshotAnswer:
        """Asked again, for as long as an answer may take at all, while the source looks up the keys."""
        from tailrace.driver.asking.key_lookups import BeingLookedUp  # brings pyarrow, which the console does without

        path, text = f"{SNAPSHOTS}/{quote(snapshot_id, safe='')}", body.to_json()
        end = time.monotonic() + TIMEOUT
        while True:
            try:
                return SnapshotAnswer.model_validate_json(self._call("PUT", path, text))
            except DriverRefused as error:
                if not error.message.startswith(f"{BeingLookedUp.__name__}: ") or time.monotonic() > end:
                    raise
            time.sleep(LOOK_PAUSE)

    def report(self, snapshot_id: str) -> VerificationReport:
        path = f"{SNAPSHOTS}/{quote(snapshot_id, safe='')}/report"
        return VerificationReport.model_validate_json(self._call("GET", path))

    def cuts(self) -> tuple[CutReport, ...]:
        return self._document(CutList, CUTS).cuts

    def make_cut(self, name: str) -> CutReport:
        return CutReport.model_validate_json(self._call("PUT", f"{CUTS}/{quote(name, safe='')}", "{}"))

    def drop_cut(self, name: str) -> None:
        self._call("DELETE", f"{CUTS}/{quote(name, safe='')}")

    def change_spec(self, body: SpecBody) -> SpecAnswer:
        """Asked again, for as long as an answer may take at all, while chunks are being read."""
        text, end = body.to_json(), time.monotonic() + TIMEOUT
        while True:
            try:
                return SpecAnswer.model_validate_json(self._call("PUT", SPEC, text))
            except DriverRefused as error:
                if not error.message.startswith(f"{Retry.__name__}: ") or time.monotonic() > end:
                    raise
            time.sleep(LOOK_PAUSE)

    def suspend(self, snapshot_id: str, suspend: bool) -> None:
        body = SuspendBody(suspend=suspend).model_dump_json(by_alias=True)
        self._call("PUT", f"{SNAPSHOTS}/{quote(snapshot_id, safe='')}/suspend", body)

    def stop(self, snapshot_id: str) -> None:
        self._call("DELETE", f"{SNAPSHOTS}/{quote(snapshot_id, safe='')}")

    def drop(self, policy: DeletionPolicy) -> DropAnswer:
        return DropAnswer.model_validate_json(self._call("POST", DROP, DropBody.of(policy).to_json()))

    def _call(self, method: str, path: str, body: str | None = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        if method != "GET" or path.startswith((SNAPSHOTS, CUTS)):
            headers["Authorization"] = f"Bearer {self._token()}"
        data = None if body is None else body.encode()
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with DIRECT.open(request, timeout=self._timeout) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            raise _problem(error.code, error.read()) from error
        except TimeoutError as error:
            raise self._silent() from error
        except (OSError, http.client.HTTPException) as error:
            if isinstance(getattr(error, "reason", None), TimeoutError):
                raise self._silent() from error
            raise NotRunning(f"the driver at {self._url} does not answer: {error}", "Start `tailrace run`.") from error

    def _silent(self) -> DriverSilent:
        return DriverSilent(f"the driver at {self._url} has not answered within {self._timeout:.0f} s")

    def _token(self) -> str:
        try:
            return self._token_file.read_text().strip()
        except OSError as error:
            raise NotRunning(
                f"cannot read the token {self._token_file}: {error}", "Run the command as the driver's user."
            ) from error


def _problem(code: int, body: bytes) -> TailraceError:
    try:
        problem = Problem.model_validate(json.loads(body))
    except ValueError:
        return DriverRefused(f"the driver answered {code}", "See the driver's log.")
    for kind in (InvalidManifest, RemovalUnconfirmed):
        if problem.name == kind.__name__:
            return kind(problem.message, problem.fix)
    return DriverRefused(f"{problem.name}: {problem.message}", problem.fix)
