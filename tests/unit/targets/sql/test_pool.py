"""A password that the target refuses: at once, or in the middle of its rotation."""

from typing import Any, cast

import pytest

from tailrace.errors import AuthenticationFailed, Retry
from tailrace.errors.backoff import ROTATION_SECONDS
from tailrace.targets.sql import pool


def test_a_password_that_was_accepted_before_is_tried_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now, refused = [0.0], [True]
    monkeypatch.setattr("tailrace.targets.sql.pool.monotonic", lambda: now[0])

    def connect() -> Any:
        if refused[0]:
            raise AuthenticationFailed("refused", "Check it.")
        return cast(Any, object())

    sessions = pool.SessionPool(connect)
    with pytest.raises(AuthenticationFailed):
        sessions._taken()
    for _ in range(2):  # each success begins the time anew
        refused[0] = False
        sessions._taken()
        refused[0] = True
        for seconds in (0.0, ROTATION_SECONDS):
            now[0] += seconds
            with pytest.raises(Retry, match="accepted before") as again:
                sessions._taken()
            assert again.value.away
        now[0] += 1
        with pytest.raises(AuthenticationFailed):
            sessions._taken()
