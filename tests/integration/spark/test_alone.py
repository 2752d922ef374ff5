"""A driver's pod without executors: Spark starts with what the operator gives to the pod, and works in the driver."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.observed import of_driver
from support.resources import replicator
from tailrace.contract.resources import Replicator

PROGRAM = """
import sys
from pathlib import Path
from tailrace.contract.resources import ReplicatorSpec
from tailrace.places import Places
from tailrace.spark import session

folder = Path(sys.argv[2])
spec = ReplicatorSpec.model_validate_json(sys.argv[1])
spark = session.start(spec, Places(spec).target, folder, folder / "spark.log")
print(spark.sparkContext.master, spark.sparkContext.parallelize(range(8), 2).map(lambda n: n * n).sum())
session.stop(spark)
"""


@pytest.mark.turn(0, 2)
def test_spark_starts_and_computes_in_a_pod_without_executors(tmp_path: Path) -> None:
    spec = Replicator.model_validate(replicator(executors={"max": 0}, driver={"memory": "1Gi", "cores": 2})).spec
    given = of_driver(spec)["containers"][0]["env"]
    fields = {"$(POD_IP)": "127.0.0.1", "$(POD_NAME)": "shop-driver-0", "$(POD_NAMESPACE)": "shop"}
    named = {e["name"]: e["value"] for e in given if "value" in e and e["name"] != "HOME"}
    place = {name: fields.get(value, value) for name, value in named.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, spec.model_dump_json(by_alias=True), str(tmp_path)],
        env={**os.environ, **place},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    log = tmp_path / "spark.log"
    assert done.returncode == 0, done.stderr[-3000:] + (log.read_text()[-3000:] if log.exists() else "")
    assert done.stdout.split() == ["local[4]", "140"]
