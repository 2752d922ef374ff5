"""The CronJob that asks how much log a source keeps: when, and what its objects are called."""

import itertools

from support.observed import SPEC, of_cron_job
from tailrace.contract.resources import ReplicatorSpec
from tailrace_operator.observe import parse
from tailrace_operator.resources import log_check, names

REPLICATOR = ReplicatorSpec.model_validate(SPEC)


def test_it_asks_every_quarter_of_an_hour_and_not_all_of_them_at_once() -> None:
    first = log_check.schedule("shop")
    minutes = [int(minute) for minute in first.partition(" ")[0].split(",")]
    assert [b - a for a, b in itertools.pairwise(minutes)] == [log_check.MINUTES] * 3
    assert first == log_check.schedule("shop"), "another operator says the same"
    assert len({log_check.schedule(f"shop-{number}") for number in range(200)}) == log_check.MINUTES


def test_the_longest_name_has_room() -> None:
    assert len(log_check.cron_job("x" * names.MAX_NAME, REPLICATOR, "image")["metadata"]["name"]) <= 52


def test_its_cpu_is_bounded_where_that_of_the_driver_is() -> None:
    """A quota on limits.cpu refuses a pod without a bound."""

    def limits(**driver: str) -> dict[str, str]:
        spec = ReplicatorSpec.model_validate({**SPEC, "driver": driver})
        template = of_cron_job(log_check.cron_job("shop", spec, "image"))
        found: dict[str, str] = template["spec"]["containers"][0]["resources"]["limits"]
        return found

    assert limits() == {"memory": log_check.MEMORY}
    assert limits(cpuLimit="2") == {"cpu": "2", "memory": log_check.MEMORY}


def test_its_pods_are_known_by_their_component() -> None:
    template = of_cron_job(log_check.cron_job("shop", REPLICATOR, "image"))
    assert parse.component(template) == names.LOG_CHECK
    assert template["metadata"]["labels"][names.REPLICATOR_LABEL] == "shop"
