"""The spec changes again and again while rows are written and read: only capture restarts, and no row is lost."""

from functools import partial
from random import Random
from typing import Any

import pytest

from support.process import Program
from support.proof.harness import Begin, Proof
from support.proof.process import status
from support.versions import turns

BEFORE: dict[str, object] = {
    "tables": {"include": ["proof.*"]},
    "options": [],
    "apply": {"freshness": "2s"},
    "retention": {},
}
FAST: dict[str, object] = {"chunkRows": 23, "parallelism": 3}


def changes(random: Random) -> list[dict[str, object]]:
    """What the manifest says, one after the other."""
    return [
        {"tables": {"include": ["proof.*"], "exclude": ["proof.composite"]}},
        {"apply": {"suspend": True}, "retention": {"time": "30m"}},
        {
            "apply": {"freshness": "1s"},
            "snapshot": {**FAST, "parallelism": random.choice([1, 6])},
            "retry": {"time": "2h"},
        },
    ]


def reload(proof: Proof, **spec: object) -> str:
    """Asked again while chunks are being read."""
    proof.deployment.spec |= {"snapshot": FAST, "retry": {}} | BEFORE | spec
    proof.deployment.write_manifest()
    for _ in range(3):
        done = proof.deployment.command("reload", "-f", str(proof.deployment.manifest), *proof.here, timeout=180)
        if done.returncode == 0:
            return done.stdout
        assert "chunks that are being read" in done.stderr, done.stderr
    raise AssertionError("the spec is never taken")


def asked(proof: Proof, name: str) -> bool:
    """False: capture is just being restarted."""
    path = proof.deployment.request(name, tables=["proof.single", "proof.typed"], chunkRows=29)
    files = ("-f", str(proof.deployment.manifest), "-f", str(path))
    done = proof.deployment.command("snapshot", *files, *proof.here, timeout=120)
    assert done.returncode == 0 or "CaptureGone" in done.stderr, done.stderr
    return done.returncode == 0


def boots(run: Program) -> int:
    return run.output.read_text().count("Spark is starting")


@pytest.mark.timeout(900)
@pytest.mark.turn(0, 2)  # whole drivers: nearly a minute of CPU
@pytest.mark.parametrize("format", turns("delta", "iceberg"))
def test_a_running_driver_takes_every_change_a_killed_one_the_next_time_and_the_target_is_equal(
    prove: Begin, format: str
) -> None:
    """At the start some columns are left out. To leave out others later stops the table until it is started over."""
    narrow = [{"match": "proof.single", "columns": ["v", "big2"]}]
    random, proof = Random(5), prove(format, seed=11, snapshot=FAST, options=narrow)
    writers = proof.writers(seed=11, count=2)
    killed_between_the_kept_spec_and_capture_s_restart(proof)
    run = proof.deployment.start()  # beside a capture of the old spec, had it not been ended first
    run.until(lambda: names(proof) == {"proof.composite", "proof.typed"}, 120, "the table to be left out")
    reload(proof)
    run.until(lambda: replicating(proof) == 3, 200, "the table to be read again")
    for number, change in enumerate(random.sample(changes(random), 3)):
        reload(proof, **change)
        if number % 2 == 0:
            run.until(partial(asked, proof, f"again-{number}"), 120, "the request to be accepted")
    reload(proof, options=[{"match": "proof.typed", "columns": ["v", "big"]}])
    run.until(lambda: stopped(proof) == ["proof.typed"], 60, "the table to stop")
    done = proof.deployment.command(
        "resync", "-f", str(proof.deployment.manifest), *proof.here, "--tables", "proof.typed"
    )
    assert done.returncode == 0, done.stderr
    run.until(lambda: stopped(proof) == [], 60, "the table to start over")
    told = reload(proof)
    assert told.startswith(("in effect: ", "nothing changed"))
    assert reload(proof) == "nothing changed\n"
    writers.stop()
    run.until(lambda: not any(s["state"] == "Running" for s in state(proof)["snapshots"]), 200, "all snapshots")
    assert boots(run) == 1 and run.output.read_text().count("capture started") > 1
    proof.settle(run)


def killed_between_the_kept_spec_and_capture_s_restart(proof: Proof) -> None:
    run = proof.deployment.start(seams="driver.spec-kept=kill")
    run.until(lambda: state(proof).get("state") == "Running", 120, "the driver to run")
    proof.deployment.spec["tables"] = {"include": ["proof.*"], "exclude": ["proof.single"]}
    proof.deployment.write_manifest()
    proof.deployment.command("reload", "-f", str(proof.deployment.manifest), *proof.here, timeout=180)
    assert run.wait(120) != 0, f"the kept spec was never reached\n{run.tail()}"


def state(proof: Proof) -> dict[str, Any]:
    return status(proof.deployment) or {}


def replicating(proof: Proof) -> int:
    return sum(t["state"] == "REPLICATING" for t in state(proof).get("tables", ()))


def stopped(proof: Proof) -> list[str]:
    return [t["name"] for t in state(proof).get("tables", ()) if t["state"] == "STOPPED"]


def names(proof: Proof) -> set[str]:
    return {t["name"] for t in state(proof).get("tables", ())}
