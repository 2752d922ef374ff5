"""BigQuery's REST interface, as far as a target needs it: queries, load jobs, data sets and tables.

Called by `session`. A job's outcome is what its own resource says. One that changes something and whose end was not
seen may run on: this process changes nothing else before it has seen that end (`UNSEEN`).
"""

import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import requests
from google.auth import default, exceptions
from google.auth.credentials import AnonymousCredentials
from google.auth.credentials import Credentials as GoogleCredentials
from google.auth.transport.requests import AuthorizedSession
from google.oauth2 import service_account

from tailrace.errors import AuthenticationFailed, Retry, TailraceError, TargetRefused
from tailrace.targets.bigquery.pace import PACE
from tailrace.targets.bigquery.unseen import UNSEEN, WHY
from tailrace.targets.bigquery.values import rows_of
from tailrace.targets.pauses import PAUSES

SCOPE = "https://www.googleapis.com/auth/bigquery"
SERVICE = "https://bigquery.googleapis.com"
CONNECT_SECONDS, ANSWER_SECONDS = 10, 120
WAIT_SECONDS = 10
"""Seconds for which one question about a job waits for its end."""
PAUSE_SECONDS = 0.5
"""Between two questions about a job."""
CHANGED = "tailrace: changed"
"""The text of the error by which our scripts say that a record is not what the driver has read."""
PASSING = frozenset(
    ("backendError", "internalError", "jobBackendError", "jobInternalError", "jobRateLimitExceeded", "quotaExceeded",
     "rateLimitExceeded", "stopped", "tableUnavailable", "timeout", "resourceInUse")
)  # fmt: skip
CONFLICT = 409
DECIMALS = ("NUMERIC", "BIGNUMERIC", "STRING")
"""Types of decimals in load jobs, the first that has all digits; by default there is only the first."""
RIGHT = "accessDenied"
UNPAID = "billingNotEnabled"
_NO_RIGHT = re.compile(r"(?:^|error: )Access Denied: ")
_NO_BILLING = re.compile(r"(?:^|error: )Billing has not been enabled")
"""Beginnings of what a script's statement says, whose reason is that of any statement that fails."""
_TOO_OFTEN = re.compile(r"(?:^|error: )(?:(?:Job e|E)xceeded rate limits|Quota exceeded): ")
"""The words of a script's statement whose quota is used up, with the reason of any that fails."""
_NO_SUCH_NAME = re.compile(r"Invalid (?:project|dataset) ID ")
DISABLED = "API has not been used in project"
"""Part of the text of a fault whose reason is that of any missing right."""
MOVE = "Create it, or correct target.bigquery (in Kubernetes, create another Replicator)."
ROLES = (
    "Give the account the roles BigQuery Job User in the project, and BigQuery Data Owner on both data sets, or"
    " BigQuery User in the project, by which it may create them."
)


class ServiceMessage(Exception):
    """The words of BigQuery's own fault, as the cause of the error that it is for us."""


@dataclass(frozen=True)
class BigQueryConfig:
    """The way to the target. Picklable; holds no secret."""

    project: str
    dataset: str
    location: str
    endpoint: str | None
    key: str | None
    """Path of the file with the key of a service account; None: Google's own ways to find credentials."""
    repeated: bool = False
    """Lists are arrays."""

    @property
    def place(self) -> str:
        return f"BigQuery {self.project}.{self.dataset}"


class BigQueryClient:
    def __init__(self, config: BigQueryConfig) -> None:
        self._config = config
        self._root = (config.endpoint or SERVICE).rstrip("/")
        self._http = AuthorizedSession(_credentials(config))

    def close(self) -> None:
        self._http.close()

    # ---- jobs ----

    def query(self, statement: str, parameters: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Run what changes nothing to its end. `parameters`: names and values of texts."""
        return self._good(self._ended(self.call("POST", "jobs", json=self._job(_query(statement, parameters)))))

    def change(
        self, statement: str, parameters: Sequence[tuple[str, str]] = (), job_id: str | None = None
    ) -> dict[str, Any]:
        """Run what changes something to its end. `job_id`: one by which another driver can see it ended."""
        for left in UNSEEN.of(self._config):
            self.settle(left)
            UNSEEN.seen(self._config, left)
        job = self._job(_query(statement, parameters), job_id)
        try:
            sent = self.call("POST", "jobs", or_conflict=True, json=job)
        except Retry as error:
            if error.away:  # else it was refused, and never runs
                UNSEEN.add(self._config, _id(job))
            raise
        ended = None
        try:
            if sent:
                ended = self._ended(sent)
            else:
                self.settle(_id(job))
        except BaseException:  # a question that is refused stops no job either
            UNSEEN.add(self._config, _id(job))
            raise
        if ended is None:
            raise Retry(f"{self._config.place}: another driver has sent the same statement")
        return self._good(ended)

    def settle(self, job_id: str) -> None:
        """See a job ended; one that has not arrived yet cannot begin any more, as its id is taken."""
        taken = self.call("POST", "jobs", or_conflict=True, json=self._job(_query("SELECT 1", ()), job_id))
        with PAUSES.told(WHY):
            self._ended(taken or self.call("GET", f"jobs/{job_id}", params={"location": self._config.location}))

    def rows(self, job: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        """The rows that a query has found."""
        asked: dict[str, Any] = {"formatOptions.useInt64Timestamp": "true", "location": self._config.location}
        page: str | None = ""
        while page is not None:
            answer = self.call("GET", f"queries/{_id(job)}", params={**asked, **({"pageToken": page} if page else {})})
            yield from rows_of(answer, answer.get("schema", {}).get("fields", ()))
            page = answer.get("pageToken")

    def load(self, dataset: str, table: str, file: bytes) -> None:
        """Append a file of Parquet to a table that is there."""
        where = {"projectId": self._config.project, "datasetId": dataset, "tableId": table}
        load = {
            "destinationTable": where,
            "sourceFormat": "PARQUET",
            "createDisposition": "CREATE_NEVER",
            "writeDisposition": "WRITE_APPEND",
            "decimalTargetTypes": DECIMALS,
            "parquetOptions": {"enableListInference": True},
        }
        boundary = f"tailrace-{secrets.token_hex(16)}"
        head = f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n"
        head += f"{json.dumps(self._job({'load': load}))}\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n"
        body = head.encode() + b"\r\n" + file + f"\r\n--{boundary}--\r\n".encode()
        kind = {"Content-Type": f"multipart/related; boundary={boundary}"}
        PACE.take()
        sent = self.call("POST", "jobs", upload=True, params={"uploadType": "multipart"}, data=body, headers=kind)
        self._good(self._ended(sent))

    def _job(self, configuration: dict[str, Any], job_id: str | None = None) -> dict[str, Any]:
        reference = {
            "projectId": self._config.project,
            "jobId": job_id or new_job_id(),
            "location": self._config.location,
        }
        return {"jobReference": reference, "configuration": configuration}

    def _ended(self, job: dict[str, Any]) -> dict[str, Any]:
        """The job at its end, however that was."""
        where, queried = {"location": self._config.location}, "query" in job["configuration"]
        pause = 0 if queried else PAUSE_SECONDS
        while job["status"]["state"] != "DONE":
            time.sleep(pause)
            pause = PAUSE_SECONDS  # whatever else was waited for: a server may answer at once
            if queried:
                wait = {**where, "timeoutMs": str(WAIT_SECONDS * 1000), "maxResults": "0"}
                self.call("GET", f"queries/{_id(job)}", params=wait)
            job = self.call("GET", f"jobs/{_id(job)}", params=where)
        return job

    def _good(self, job: dict[str, Any]) -> dict[str, Any]:
        error = job["status"].get("errorResult")
        if error is not None:
            message = str(error.get("message", ""))
            raise self._fault(error.get("reason", ""), message) from ServiceMessage(message)
        return job

    # ---- tables and data sets ----

    def table(self, dataset: str, name: str) -> dict[str, Any] | None:
        """None: it is not there, or its data set is not."""
        return self._found(f"datasets/{dataset}/tables/{name}")

    def tables(self, dataset: str) -> Iterator[str]:
        page: str | None = ""
        while page is not None:
            asked = {"maxResults": "1000", **({"pageToken": page} if page else {})}
            answer = self._found(f"datasets/{dataset}/tables", asked) or {}
            yield from (str(table["tableReference"]["tableId"]) for table in answer.get("tables", ()))
            page = answer.get("nextPageToken")

    def row_policies(self, dataset: str, name: str) -> list[str]:
        """Names of a table's row access policies: not all, if there are very many."""
        found = self._found(f"datasets/{dataset}/tables/{name}/rowAccessPolicies") or {}
        return [str(one["rowAccessPolicyReference"]["policyId"]) for one in found.get("rowAccessPolicies", ())]

    def dataset(self, dataset: str) -> dict[str, Any] | None:
        return self._found(f"datasets/{dataset}")

    def _found(self, path: str, asked: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        """None: nothing is there."""
        try:
            return self.call("GET", path, params=asked)
        except TargetRefused as error:
            if error.absent:
                return None
            raise

    def call(
        self, method: str, path: str, *, upload: bool = False, or_conflict: bool = False, **more: Any
    ) -> dict[str, Any]:
        """The answer to one request below the project. `or_conflict`: nothing, if what it would make is there."""
        address = f"{self._root}{'/upload' if upload else ''}/bigquery/v2/projects/{self._config.project}/{path}"
        try:
            answer = self._http.request(method, address, timeout=(CONNECT_SECONDS, ANSWER_SECONDS), **more)
        except exceptions.RefreshError as error:
            raise _not_accepted(self._config.place, str(error)) from error
        except (requests.RequestException, exceptions.GoogleAuthError) as error:
            raise Retry.of_place(f"{self._config.place} does not answer: {error}") from error
        try:
            said: dict[str, Any] = answer.json() if answer.content else {}
        except ValueError:
            said = {}
        if answer.ok or (or_conflict and answer.status_code == CONFLICT):
            return said if answer.ok else {}
        fault = said.get("error", {})
        reason = next((str(one.get("reason", "")) for one in fault.get("errors", ())), "")
        message = str(fault.get("message") or answer.reason)
        raise self._fault(reason, message, answer.status_code) from ServiceMessage(message)

    def _fault(self, reason: str, message: str, status: int = 0) -> TailraceError:
        place = self._config.place
        if CHANGED in message:
            return Retry(f"{place}: another driver has changed the state of a table in the target")
        if status == 401:
            return _not_accepted(place, message)
        if reason in PASSING or status == 429 or status >= 500 or _TOO_OFTEN.search(message):
            return Retry.of_place(f"{place}: {message}")
        if reason == UNPAID or _NO_BILLING.search(message):
            return TargetRefused(f"{place}: {message}", "Enable billing for the project.")
        if DISABLED in message:
            return TargetRefused(f"{place}: {message}", "Enable the BigQuery API in the project.")
        if reason == RIGHT or status == 403 or _NO_RIGHT.search(message):
            return TargetRefused(f"{place}: {message}", ROLES)
        if reason == "notFound" or status == 404:
            lacks = TargetRefused(f"{place}: {message}", MOVE)
            lacks.absent = True
            return lacks
        if _NO_SUCH_NAME.match(message):
            return TargetRefused(f"{place}: {message}", MOVE)
        return Retry(f"{place}: {message}")


def new_job_id() -> str:
    return f"tailrace_{secrets.token_hex(12)}"


def _query(statement: str, parameters: Sequence[tuple[str, str]]) -> dict[str, Any]:
    query: dict[str, Any] = {"query": statement, "useLegacySql": False}
    if parameters:
        query["parameterMode"] = "NAMED"
        query["queryParameters"] = [
            {"name": name, "parameterType": {"type": "STRING"}, "parameterValue": {"value": value}}
            for name, value in parameters
        ]
    return {"query": query}


def _id(job: Mapping[str, Any]) -> str:
    return str(job["jobReference"]["jobId"])


def _not_accepted(place: str, why: str) -> AuthenticationFailed:
    return _no_entry(f"{place} does not accept the credentials: {why}")


def _no_entry(message: str) -> AuthenticationFailed:
    failed = AuthenticationFailed(message, "Correct target.credentials.")
    failed.where = "target"  # type: ignore[assignment]  # else it is the source that refuses
    return failed


def _credentials(config: BigQueryConfig) -> GoogleCredentials:
    """Read for each connection, so that a rotated key is taken without a restart."""
    try:
        if config.key is not None:
            key: GoogleCredentials = service_account.Credentials.from_service_account_file(config.key, scopes=[SCOPE])
            return key
        if config.endpoint is not None:
            return AnonymousCredentials()
        return default(scopes=[SCOPE])[0]
    except OSError as error:
        raise _no_entry(f"the key of the service account, {config.key}, cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, exceptions.GoogleAuthError):  # any JSON is taken for a key
        if config.key is None:
            raise _no_entry("no Google credentials were found") from None
        raise _no_entry(f"{config.key} is no key of a service account") from None
