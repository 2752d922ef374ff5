"""Another spec takes the place of the one that the driver works by."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support.resources import replicator
from tailrace.contract.driver import SpecAnswer, SpecBody
from tailrace.contract.manifest import parse
from tailrace.contract.resources import LIVE_FIELDS, OPERATOR_FIELDS, Replicator, ReplicatorSpec
from tailrace.driver.asking import live_spec
from tailrace.driver.asking.live_spec import LiveSpec
from tailrace.errors import InvalidManifest, Retry, StorageFull


def resource(generation: int | None = None, uid: str | None = "u1", **spec: Any) -> Replicator:
    found = parse(json.dumps(replicator(**spec)), "m").replicator()
    return found.model_copy(
        update={"metadata": found.metadata.model_copy(update={"generation": generation, "uid": uid})}
    )


def body(generation: int | None = None, **spec: Any) -> SpecBody:
    return SpecBody(generation=generation, spec=resource(**spec).spec)


def live(generation: int | None = None) -> LiveSpec:
    made = LiveSpec(resource(generation))
    made.accepts = True
    return made


def test_a_spec_is_in_effect_when_the_offer_returns() -> None:
    made, answers = live(), list[SpecAnswer]()
    asking = threading.Thread(
        target=lambda: answers.append(made.offer(body(7, apply={"freshness": "2s"}, tables={"include": ["shop.*"]})))
    )
    asking.start()
    while (offer := made.next()) is None:
        time.sleep(0.01)
    assert made.spec.freshness == 5.0
    assert [made.generation] == [None] and made.take(offer)
    made.settle(offer)
    asking.join(10)
    assert (made.spec.apply.freshness, made.generation, made.next()) == ("2s", 7, None)
    assert answers[0].changed == ("tables.include", "apply.freshness")
    assert made.offer(body(7, apply={"freshness": "2s"}, tables={"include": ["shop.*"]})).changed == ()


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({"showValues": True}, "showValues"),
        ({"driver": {"cores": 3}, "apply": {"suspend": True}}, "driver.cores"),
        ({"restartNonce": 4}, "restartNonce"),
    ],
)
def test_what_only_a_restart_changes_is_refused_by_name(spec: dict[str, Any], names: str) -> None:
    made = live()
    with pytest.raises(InvalidManifest) as refused:
        made.offer(body(**spec))
    assert names in refused.value.message and made.next() is None


def test_no_field_is_left_to_chance() -> None:
    """A new one is read at start unless somebody says otherwise."""
    assert set(ReplicatorSpec.model_fields) > LIVE_FIELDS | OPERATOR_FIELDS


def test_an_offer_that_has_to_wait_stays_and_a_newer_one_takes_its_place() -> None:
    made = live()
    for seconds in ("2s", "2s", "3s"):
        with pytest.raises(Retry, match="being read"):
            made.offer(body(apply={"freshness": seconds}), patience=0)
    offer = made.next()
    assert offer is not None and offer.replicator.spec.apply.freshness == "3s"
    assert made.take(offer)
    made.settle(offer, StorageFull("no room"))
    assert (made.next(), made.spec.freshness) == (None, 5.0)


def test_what_is_changed_back_while_it_waits_is_never_taken() -> None:
    made = live()
    with pytest.raises(Retry):
        made.offer(body(apply={"freshness": "2s"}), patience=0)
    offer = made.next()
    assert offer is not None
    assert made.offer(body()).changed == ()
    assert made.next() is None and not made.take(offer), "the main loop had it in its hands"
    assert made.spec.freshness == 5.0


def test_a_refusal_reaches_whoever_waits() -> None:
    made, met = live(), list[Exception]()

    def ask() -> None:
        try:
            made.offer(body(apply={"freshness": "2s"}))
        except StorageFull as error:
            met.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    while (offer := made.next()) is None:
        time.sleep(0.01)
    assert made.take(offer)
    made.settle(offer, StorageFull("no room"))
    asking.join(10)
    assert len(met) == 1


def test_a_driver_that_starts_is_asked_again() -> None:
    with pytest.raises(Retry, match="still starting"):
        LiveSpec(resource()).offer(body(apply={"freshness": "2s"}))


def test_a_container_that_starts_again_works_by_the_newer_manifest(tmp_path: Path) -> None:
    mounted, taken = resource(6), resource(7, apply={"freshness": "2s"})
    assert live_spec.newest(tmp_path, mounted) is mounted
    assert live_spec.keep(tmp_path, taken)
    assert not live_spec.keep(tmp_path, taken)
    assert live_spec.newest(tmp_path, mounted) == taken
    assert live_spec.newest(tmp_path, resource(8)) == resource(8)
    assert live_spec.newest(tmp_path, resource(6, uid="u2")) == resource(6, uid="u2")
    on_a_laptop = resource(None, uid=None)
    assert live_spec.newest(tmp_path, on_a_laptop) is on_a_laptop
    live_spec.path(tmp_path).write_text('{"apiVersion": "tail')
    assert live_spec.newest(tmp_path, mounted) is mounted
