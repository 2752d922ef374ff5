"""The budget of status writes: few objects never wait, many get the same share, and nobody is forgotten."""

from collections import Counter

from tailrace_operator.act.budget import BURST_SECONDS, MOST_DEBT_SECONDS, Budget


def test_few_objects_do_not_wait() -> None:
    now = 1000.0
    budget = Budget(20, lambda: now)
    for _ in range(60):
        now += 1.0
        assert all(budget.take(uid) for uid in ("a", "b", "c", "d"))


def test_five_hundred_objects_that_always_want_to_write_share_the_budget_evenly() -> None:
    now, rate = 1000.0, 20
    budget = Budget(rate, lambda: now)
    written: Counter[str] = Counter()
    names = [str(number) for number in range(500)]
    for step in range(1, 1001):
        now = 1000.0 + step / 10
        # Whoever comes first always comes first: it must not help.
        written.update(uid for uid in names if budget.take(uid))
    assert sum(written.values()) <= rate * (100 + BURST_SECONDS) + 1
    assert max(written.values()) - min(written.values()) <= 1


def test_a_place_is_kept_until_its_time_and_used_once() -> None:
    now = 1000.0
    budget = Budget(1, lambda: now)
    assert [budget.take(uid) for uid in "abcd"] == [True, True, True, False]
    assert budget.wait("d") == 1.0
    assert not budget.take("d") and budget.wait("d") == 1.0, "to ask again moves nobody back"
    now += 1.0
    assert budget.wait("d") == 0.0 and budget.take("d") and not budget.take("d")


def test_a_write_that_does_not_wait_uses_the_place_that_its_object_has_and_else_moves_the_others_back() -> None:
    now = 1000.0
    budget = Budget(1, lambda: now)
    for uid in "abcd":
        budget.take(uid)
    budget.force("d")
    assert not budget.take("e") and budget.wait("e") == 2.0
    budget.force("f")
    assert not budget.take("g") and budget.wait("g") == 4.0


def test_an_object_that_is_gone_leaves_nothing_behind() -> None:
    budget = Budget(1, lambda: 1000.0)
    for uid in "abcd":
        budget.take(uid)
    budget.forget("d")
    assert budget.wait("d") == 0.0
    assert vars(budget)["_places"] == {}


def test_thousands_of_writes_that_do_not_wait_silence_the_others_for_seconds_and_not_for_minutes() -> None:
    now = 1000.0
    budget = Budget(20, lambda: now)
    for number in range(25_000):  # five thousand objects start, each with a few intents and conditions
        budget.force(str(number))
    assert not budget.take("a") and budget.wait("a") <= MOST_DEBT_SECONDS + 0.05
