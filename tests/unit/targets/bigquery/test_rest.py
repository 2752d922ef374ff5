"""What BigQuery's faults mean for the caller."""

from pathlib import Path
from typing import Any

import pytest
import requests

from tailrace.errors import AuthenticationFailed, Retry, TailraceError, TargetRefused, where_of
from tailrace.targets.bigquery.rest import CHANGED, PAUSE_SECONDS, BigQueryClient, BigQueryConfig
from tailrace.targets.bigquery.unseen import UNSEEN

CONFIG = BigQueryConfig("p", "d", "EU", "http://127.0.0.1:9", None)


class Answering:
    """Answers each request with the next of its answers."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers, self.asked = list(answers), list[tuple[str, str]]()
        self.sent = list[dict[str, Any]]()

    def request(self, method: str, address: str, **more: Any) -> requests.Response:
        if "json" in more:
            self.sent.append(more["json"])
        self.asked.append((method, address.partition("/bigquery/v2/projects/p/")[2]))
        answer = requests.Response()
        answer.status_code, answer._content = self.answers.pop(0)
        return answer


def client(*answers: tuple[int, bytes]) -> tuple[BigQueryClient, Answering]:
    made, http = BigQueryClient(CONFIG), Answering(*answers)
    made._http = http  # type: ignore[assignment]  # it needs one method
    return made, http


def fault(status: int, reason: str, message: str = "m") -> tuple[int, bytes]:
    return status, f'{{"error": {{"message": "{message}", "errors": [{{"reason": "{reason}"}}]}}}}'.encode()


@pytest.mark.parametrize(
    ("answer", "kind", "away"),
    [
        (fault(401, "authError"), AuthenticationFailed, None),
        (fault(403, "accessDenied"), TargetRefused, None),
        (fault(403, "quotaExceeded"), Retry, True),
        (fault(403, "rateLimitExceeded"), Retry, True),
        (fault(404, "notFound"), TargetRefused, None),
        (fault(400, "invalidQuery", CHANGED), Retry, False),
        (fault(400, "invalidQuery", "Transaction is aborted due to concurrent update"), Retry, False),
        (
            fault(400, "invalidQuery", "Query error: Exceeded rate limits: too many table update operations"),
            Retry,
            True,
        ),
        (fault(400, "invalidQuery", "Job exceeded rate limits: Your table exceeded quota for updates"), Retry, True),
        (fault(400, "invalidQuery", "Quota exceeded: Your table exceeded quota for updates"), Retry, True),
        (fault(400, "invalidQuery", "Could not cast literal 'Quota exceeded: x'"), Retry, False),
        ((502, b"<html>"), Retry, True),
    ],
)
def test_a_fault_is_what_the_caller_must_do(answer: tuple[int, bytes], kind: type[TailraceError], away: bool) -> None:
    with pytest.raises(kind) as met:
        client(answer)[0].query("SELECT 1")
    assert met.value.message.startswith("BigQuery p.d") and getattr(met.value, "away", None) is away


@pytest.mark.parametrize(
    ("answer", "fix"),
    [
        (fault(403, "billingNotEnabled"), "Enable billing for the project."),
        (fault(403, "accessDenied", "BigQuery API has not been used in project p before or it is disabled."),
         "Enable the BigQuery API in the project."),
    ],
)  # fmt: skip
def test_a_project_that_lacks_more_than_a_role_says_what(answer: tuple[int, bytes], fix: str) -> None:
    with pytest.raises(TargetRefused) as met:
        client(answer)[0].query("SELECT 1")
    assert met.value.fix == fix


@pytest.mark.parametrize("text", [None, "", "[]", "text"])
def test_a_key_that_is_none_is_named_as_the_target_s(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "key.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(AuthenticationFailed) as met:
        BigQueryClient(BigQueryConfig("p", "d", "EU", None, str(file)))
    assert str(file) in met.value.message and where_of(met.value) == "target"


def test_a_service_that_does_not_answer_is_away() -> None:
    with pytest.raises(Retry) as met:
        BigQueryClient(CONFIG).query("SELECT 1")
    assert met.value.away


def job(state: str, error: str = "") -> tuple[int, bytes]:
    more = f', "errorResult": {{"reason": "{error}", "message": "m"}}' if error else ""
    configuration = '"configuration": {"query": {}}'
    return (
        200,
        f'{{"jobReference": {{"jobId": "j"}}, {configuration}, "status": {{"state": "{state}"{more}}}}}'.encode(),
    )


def failed(reason: str, message: str) -> tuple[int, bytes]:
    status, body = job("DONE", reason)
    return status, body.replace(b'"message": "m"', f'"message": "{message}"'.encode())


def test_a_job_is_waited_for_and_its_own_resource_says_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question waits by itself; after one that did not, there is a pause."""
    pauses = list[float]()
    monkeypatch.setattr("time.sleep", pauses.append)
    made, http = client(job("RUNNING"), (200, b"{}"), job("RUNNING"), (200, b"{}"), job("DONE"))
    assert made.query("SELECT 1")["status"] == {"state": "DONE"}
    assert [path for _, path in http.asked] == ["jobs", "queries/j", "jobs/j", "queries/j", "jobs/j"]
    assert pauses == [0, PAUSE_SECONDS]
    made, _ = client(job("RUNNING"), (200, b"{}"), job("DONE", "backendError"))
    with pytest.raises(Retry):
        made.query("SELECT 1")


TAKEN = fault(409, "duplicate", "Already Exists: Job p:EU.j")


def test_nothing_is_changed_before_a_job_whose_end_was_not_seen_has_ended() -> None:
    """Neither by the same client nor by another of this process; what only reads waits for nothing."""
    made, http = client(job("RUNNING"), (503, b"{}"))
    with pytest.raises(Retry):
        made.change("DROP TABLE a")
    lost = http.sent[0]["jobReference"]["jobId"]
    made, http = client(job("DONE"))
    made.query("SELECT 2")
    made, http = client(TAKEN, (503, b"{}"))
    with pytest.raises(Retry):
        made.change("DROP TABLE b")
    assert [path for _, path in http.asked] == ["jobs", f"jobs/{lost}"]
    made, http = client(TAKEN, job("RUNNING"), (200, b"{}"), job("DONE", "backendError"), job("DONE"), job("DONE"))
    made.change("DROP TABLE b")
    made.change("DROP TABLE c")
    assert [sent["configuration"]["query"]["query"] for sent in http.sent] == [
        "SELECT 1", "DROP TABLE b", "DROP TABLE c",
    ]  # fmt: skip
    assert http.sent[0]["jobReference"]["jobId"] == lost


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (fault(401, "authError"), AuthenticationFailed),
        (fault(403, "accessDenied"), TargetRefused),
        (fault(404, "notFound"), TargetRefused),
        (fault(400, "invalid"), Retry),
    ],
)
def test_a_job_about_which_a_question_is_refused_may_run_on(answer: tuple[int, bytes], kind: type[Exception]) -> None:
    made, http = client(job("RUNNING"), answer)
    with pytest.raises(kind):
        made.change("DROP TABLE a")
    lost = http.sent[0]["jobReference"]["jobId"]
    assert UNSEEN.of(CONFIG) == [lost]
    made, http = client(TAKEN, job("DONE"), job("DONE"))
    made.change("DROP TABLE b")
    assert [path for _, path in http.asked] == ["jobs", f"jobs/{lost}", "jobs"] and UNSEEN.of(CONFIG) == []


@pytest.mark.parametrize("answers", [[job("DONE", "accessDenied")], [fault(403, "accessDenied")]])
def test_a_job_that_failed_or_was_never_taken_does_not_run_on(answers: list[tuple[int, bytes]]) -> None:
    made, _ = client(*answers)
    with pytest.raises(TargetRefused):
        made.change("DROP TABLE a")
    assert UNSEEN.of(CONFIG) == []


def test_a_job_whose_request_was_lost_never_begins_afterwards() -> None:
    made, _ = client((503, b"{}"))
    with pytest.raises(Retry):
        made.change("DROP TABLE a", job_id="one")
    made, http = client(job("DONE"), job("DONE"))
    made.change("DROP TABLE b")
    assert http.sent[0]["jobReference"]["jobId"] == "one"
    assert http.sent[0]["configuration"]["query"]["query"] == "SELECT 1"


def test_a_statement_that_another_driver_has_sent_is_not_sent_again() -> None:
    made, http = client(TAKEN, TAKEN, job("DONE"))
    with pytest.raises(Retry, match="another driver has sent the same statement"):
        made.change("CREATE TABLE a", job_id="one")
    assert [path for _, path in http.asked] == ["jobs", "jobs", "jobs/one"] and UNSEEN.of(CONFIG) == []


def test_a_statement_of_another_driver_whose_end_was_not_seen_may_run_on() -> None:
    made, _ = client(TAKEN, TAKEN, fault(401, "authError"))
    with pytest.raises(AuthenticationFailed):
        made.change("CREATE TABLE a", job_id="one")
    assert UNSEEN.of(CONFIG) == ["one"]
    made, _ = client(TAKEN, job("DONE"), job("DONE"))
    made.change("DROP TABLE b")
    assert UNSEEN.of(CONFIG) == []


def test_decimals_are_loaded_with_all_their_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = list[bytes]()
    made, http = client(job("DONE"))
    ask = http.request

    def request(method: str, address: str, **more: Any) -> requests.Response:
        bodies.append(more["data"])
        return ask(method, address, **more)

    monkeypatch.setattr(http, "request", request)
    made.load("d", "t", b"PAR1")
    assert b'"decimalTargetTypes": ["NUMERIC", "BIGNUMERIC", "STRING"]' in bodies[0]


@pytest.mark.parametrize(
    ("answer", "fix"),
    [
        (fault(400, "invalid", "Invalid project ID 'A'. Project IDs must contain 6-63 lowercase letters"), "Create it"),
        (fault(400, "invalid", "Invalid dataset ID 'a-b'"), "Create it"),
        (job("DONE", "billingNotEnabled"), "Enable billing for the project."),
        (failed("invalidQuery", "Billing has not been enabled for this project."), "Enable billing for the project."),
        (job("DONE", "accessDenied"), "Give the account the roles"),
        (failed("invalidQuery", "Query error: Access Denied: Table p:d.t: User does not have permission"), "Give the"),
    ],
)  # fmt: skip
def test_what_does_not_pass_by_itself_stops_with_its_fix(answer: tuple[int, bytes], fix: str) -> None:
    with pytest.raises(TargetRefused) as met:
        client(answer)[0].query("SELECT 1")
    assert met.value.fix.startswith(fix)


def test_a_value_that_says_what_a_fault_says_is_none() -> None:
    with pytest.raises(Retry):
        client(failed("invalidQuery", "Could not cast literal 'Access Denied: x'"))[0].query("SELECT 1")
