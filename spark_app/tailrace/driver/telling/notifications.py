"""Sends the notices of `spec.notifications` to their receiver: CloudEvents over HTTP, signed, at least once.

The thread that reads the journal puts notices into a queue and waits for nothing; a thread of its own sends them, in
order. What was sent is recorded now and then (`Notified`): a restart sends again what came after. A receiver that is
down delays its own notices, until the attempts are used up: those are dropped, and counted. More than fit into the
queue are read from the journal again.
"""

import base64
import binascii
import hashlib
import hmac
import http.client
import logging
import math
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tailrace.changelog.journal import read_record
from tailrace.changelog.records import Record
from tailrace.changelog.records.notices import Notified
from tailrace.changelog.records.terms import RecordNumber
from tailrace.changelog.shared_journal import SharedJournal
from tailrace.changelog.state import LogState
from tailrace.contract.settings import NotificationsSpec
from tailrace.contract.status import NotificationsStatus
from tailrace.driver.telling.notices import Notice, is_forgotten, notices
from tailrace.errors import InvalidManifest, Retry
from tailrace.storage.secret_files import file_place
from tailrace.storage.store import NotFound

log = logging.getLogger(__name__)

SECRET_KEY = "signingKey"
"""The key in the Secret that `spec.notifications.credentials` names."""
LEAST_BYTES = 16
QUEUE = 1000
"""Notices that wait in memory; more wait in the journal."""
ATTEMPTS = 10
LONGEST_PAUSE = 60.0
"""Seconds between two attempts; the first pause is one second, and each is twice as long as the one before."""
TIMEOUT = 10.0
"""Seconds for each step of an attempt."""
AT_ONCE = 50
"""Notices that one step sends at most."""
READ_AT_ONCE = MOST_RECORDS = 1000
"""Records that one step reads at most; and a start goes back no further than these to send what was not sent."""
RECORD_SECONDS = 10.0
"""Between two records of what was sent."""
FIRST_RECORDS = 100
"""The first start with notifications sends what these last records hold, a later one all that was not sent."""


def key_path(spec: NotificationsSpec, secrets: Path | None) -> Path:
    """`secrets` as in `secret_files`. `InvalidManifest`: there is no key."""
    given = spec.credentials
    if given.file is not None:
        path = Path(given.file)
    elif secrets is not None:
        path = secrets / str(given.secret_name) / SECRET_KEY
    else:
        raise InvalidManifest(
            f"spec.notifications: Secret {given.secret_name!r} cannot be read outside Kubernetes",
            "Use notifications.credentials.file instead.",
        )
    signing_key(path)
    return path


def signing_key(path: Path) -> bytes:
    """Read for each attempt, so that a new one is used without a restart."""
    what = file_place(str(path), "signing key file")
    try:
        text = path.read_bytes().strip()
    except OSError as error:
        why = f"spec.notifications: {what} cannot be read: {error.strerror}"
        raise InvalidManifest(why, "Write the key into it, or correct notifications.credentials.") from None
    try:
        key = base64.b64decode(text[6:], validate=True) if text.startswith(b"whsec_") else text
    except binascii.Error:
        key = b""
    if len(key) < LEAST_BYTES:
        raise InvalidManifest(
            f"spec.notifications: {what} has {len(key)} bytes, fewer than {LEAST_BYTES}",
            "Write a random key into it, such as the output of `openssl rand -hex 32`.",
        )
    return key


def signature(key: bytes, notice_id: str, at: int, body: bytes) -> str:
    """The signature as Standard Webhooks define it."""
    signed = f"{notice_id}.{at}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


@dataclass
class NotificationCounters:
    """Since the start."""

    sent: int = 0
    failed: int = 0
    """Attempts."""
    dropped: int = 0
    lost: int = 0
    """Records whose events can no longer be told."""


class NotificationQueue:
    """Notices between the thread that reads the journal and the one that sends.

    It holds `QUEUE` notices. What comes while it is full is not lost: it stays in the journal, which the sender reads
    again from there as places become free."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting = deque[Notice]()
        self._seen = RecordNumber(-1)
        """The last record of the journal."""
        self._state = LogState()
        """The state behind it."""
        self._behind: RecordNumber | None = RecordNumber(0)
        """The first record whose notices are to be read from the journal, with all that follow. None: there is none."""
        self._most = QUEUE - 1
        """The number that may be waiting when that record is read."""

    def begin(self, first: RecordNumber, state: LogState) -> None:
        """Records from `first` on are to be sent. `state`: that before the first record that is heard."""
        with self._lock:
            if self._seen < state.number:
                self._seen, self._state = state.number, state
            self._behind = first if first <= self._seen else None

    def heard(self, record: Record, state: LogState) -> None:
        """A new record, in order."""
        with self._lock:
            self._seen, self._state = record.number, state
            if self._behind is None and not self._add(record, state):
                self._behind = record.number

    @property
    def next(self) -> RecordNumber | None:
        """The record that is to be read from the journal now. None: there is none, or no place."""
        with self._lock:
            return None if len(self._waiting) > self._most else self._behind

    def read(self, record: Record | None) -> bool:
        """The record that `next` asked for. None: retention has removed it. False: its events can no longer be told."""
        with self._lock:
            assert self._behind is not None
            if record is not None and not self._add(record, self._state):
                return True
            self._behind = RecordNumber(self._behind + 1) if self._behind < self._seen else None
            return record is not None and not is_forgotten(record, self._state)

    def _add(self, record: Record, state: LogState) -> bool:
        """False: they do not fit. Those of one record stay together, even if they alone are too many."""
        found = list(notices(self._name, record, state))
        fits = not self._waiting or len(self._waiting) + len(found) <= QUEUE
        self._most = QUEUE - 1 if fits else max(0, QUEUE - len(found))
        if fits:
            self._waiting.extend(found)
        return fits

    @property
    def first(self) -> Notice | None:
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def done(self) -> None:
        with self._lock:
            self._waiting.popleft()

    @property
    def through(self) -> RecordNumber:
        """All notices up to this record have been sent, or dropped."""
        with self._lock:
            if self._waiting:
                return RecordNumber(self._waiting[0].record - 1)
            return self._seen if self._behind is None else RecordNumber(self._behind - 1)

    @property
    def is_empty(self) -> bool:
        """True if nothing waits, here or in the journal."""
        with self._lock:
            return not self._waiting and self._behind is None

    def __len__(self) -> int:
        return len(self._waiting)


def _first_unsent(state: LogState) -> tuple[int, int]:
    """The first record to send, and how many before it have not been sent."""
    if state.notified is None:
        return max(state.number - FIRST_RECORDS + 1, 0), 0
    first = max(state.notified + 1, state.number - MOST_RECORDS + 1)
    return first, first - state.notified - 1


class Keeper(Protocol):
    """The driver's control."""

    journal: SharedJournal | None

    def carry_out(self, act: Callable[[LogState], Sequence[Notified]]) -> None:
        """Records what `act` makes of the state."""


class Notifications:
    def __init__(
        self,
        name: str,
        spec: NotificationsSpec,
        key: Path,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name`: of the Replicator."""
        self._url = urlsplit(spec.url)
        self._key = key
        self._clock, self._monotonic = clock, monotonic
        self.counters = NotificationCounters()
        self._queue = NotificationQueue(name)
        self._begun = False
        self._attempts = 0
        self._next_at = 0.0
        self._fault = ""
        self._recorded_at = 0.0
        self._sent = False
        """Something was sent or dropped that no record says."""
        self._stepping = threading.Lock()

    def status(self) -> NotificationsStatus:
        made = self.counters
        return NotificationsStatus(
            sent=made.sent, failed=made.failed, dropped=made.dropped, lost=made.lost, waiting=len(self._queue)
        )

    def step(self, control: Keeper) -> None:
        """Some notices, until an attempt fails."""
        with self._stepping:
            self._step(control)

    def finish(self, control: Keeper) -> None:
        """The last notices of a driver that ends, until an attempt fails: the rest a later one sends."""
        if control.journal is None:
            return
        control.journal.refresh()  # nobody else reads it any longer
        for _ in range(QUEUE // AT_ONCE):
            self._recorded_at = -math.inf  # each step records what it sent: the driver may end before the next one
            self.step(control)
            if self._attempts or self._queue.is_empty:
                return

    def _step(self, control: Keeper) -> None:
        journal = control.journal
        if journal is None:
            return
        if not self._begun:
            state = journal.follow(self._queue.heard)
            self._begun = True
            first, skipped = _first_unsent(state)
            self._queue.begin(RecordNumber(first), state)
            self._count_lost(skipped)
        self._read(journal)
        now = self._monotonic()
        for _ in range(AT_ONCE):
            notice = self._queue.first
            if notice is None or now < self._next_at or not self._attempt(notice, now):
                break
        if self._sent and now - self._recorded_at >= RECORD_SECONDS:
            self._recorded_at = now
            self._record(control)

    def _read(self, journal: SharedJournal) -> None:
        """Read notices that no process has sent, or that did not fit into the queue. A storage that is
        away ends the step, and the next one continues."""
        lost = 0
        try:
            for _ in range(READ_AT_ONCE):
                number = self._queue.next
                if number is None:
                    return
                try:
                    record: Record | None = read_record(journal.storage, number)
                except NotFound:
                    record = None
                lost += not self._queue.read(record)
        finally:
            self._count_lost(lost)

    def _count_lost(self, records: int) -> None:
        if records:
            self.counters.lost += records
            log.warning(
                "notifications: events of %d records of the change log can no longer be told: too much happened while"
                " the receiver or this process was away",
                records,
            )

    def _attempt(self, notice: Notice, now: float) -> bool:
        """True if it was sent."""
        try:
            status = self._post(notice)
            why = "" if 200 <= status < 300 else f"it answers {status}"
        except (OSError, http.client.HTTPException, ValueError, OverflowError, InvalidManifest) as error:
            # A text of the library may show the whole URL, which may hold a secret.
            why = error.message if isinstance(error, InvalidManifest) else type(error).__name__
        if not why:
            self.counters.sent += 1
            self._finished("")
            return True
        self.counters.failed += 1
        self._attempts += 1
        if why != self._fault:
            log.warning("notifications: %s does not accept them: %s. Fix: Repair it, or correct spec.notifications.",
                        self._receiver, why)  # fmt: skip
        self._fault = why
        if self._attempts >= ATTEMPTS:
            self.counters.dropped += 1
            log.warning("notification %s is dropped after %d attempts", notice.id, self._attempts)
            self._finished(why)
        self._next_at = now + min(LONGEST_PAUSE, 2.0 ** max(self._attempts - 1, 0))
        return False

    def _finished(self, fault: str) -> None:
        self._queue.done()
        self._attempts, self._fault, self._sent = 0, fault, True

    @property
    def _receiver(self) -> str:
        return f"{self._url.scheme}://{self._url.hostname}"

    def _post(self, notice: Notice) -> int:
        url, at = self._url, int(self._clock())
        headers = {
            "Content-Type": "application/cloudevents+json; charset=utf-8",
            "webhook-id": notice.id,
            "webhook-timestamp": str(at),
            "webhook-signature": signature(signing_key(self._key), notice.id, at, notice.body),
        }
        host, port = str(url.hostname), url.port
        if url.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=TIMEOUT, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        try:
            connection.request("POST", (url.path or "/") + (f"?{url.query}" if url.query else ""), notice.body, headers)
            with connection.getresponse() as answer:
                return answer.status
        finally:
            connection.close()

    def _record(self, control: Keeper) -> None:
        through = self._queue.through

        def act(state: LogState) -> Sequence[Notified]:
            known = -1 if state.notified is None else state.notified
            return (Notified(record=through),) if through > known else ()

        try:
            control.carry_out(act)
        except Retry:
            return  # capture is away: it is recorded later, or sent again
        self._sent = False
