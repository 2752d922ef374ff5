"""The driver's own Spark session: who may talk to it, and from where."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pyspark

from cluster import images
from support.foreign_client import ask, is_refused
from support.proof.process import ENVIRONMENT

SESSION = """
import sys
from pathlib import Path
from tailrace.contract.resources import ReplicatorSpec
from tailrace.places import Places
from tailrace.spark import session

folder = Path(sys.argv[1])
place = {"location": f"file://{folder}/lake"}
spec = ReplicatorSpec.model_validate({
    "source": {"type": "postgresql", "host": "h", "database": "d", "username": "u"}, "tables": {"include": ["a.b"]},
    "target": {"type": "delta", **place}, "storage": {"location": f"file://{folder}/log"}})
spark = session.start(spec, Places(spec).target, folder, folder / "spark.log")
pairs = spark.sparkContext.parallelize(range(200), 4).map(lambda n: (n % 7, n)).reduceByKey(lambda a, b: a + b, 4)
assert sum(total for _, total in pairs.collect()) == 19900
print(spark.sparkContext.getConf().get("spark.driver.port"), spark.sparkContext._gateway.proc.pid, flush=True)
sys.stdin.readline()
session.stop(spark)
"""


def test_a_stranger_is_refused_and_no_port_is_open_to_the_network(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SESSION, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        port, jvm = map(int, process.stdout.readline().split())
        open_ports = [c.laddr for c in psutil.Process(jvm).net_connections() if c.status == psutil.CONN_LISTEN]
        assert port in {address.port for address in open_ports}
        assert {address.ip.removeprefix("::ffff:") for address in open_ports} == {"127.0.0.1"}
        answer = ask("127.0.0.1", port)
        assert is_refused(answer), answer
        command = " ".join(psutil.Process(jvm).cmdline())
        assert "spark.authenticate=true" in command and "spark.authenticate.secret" not in command
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(60) == 0


def test_an_executor_proves_itself_with_its_first_message(tmp_path: Path) -> None:
    """With the image's entry point, and of Spark's settings only what its environment brings. The secret must be known
    before the driver can be asked for the others."""
    (tmp_path / "secret").write_text("s3cret")
    tini = tmp_path / "tini"
    tini.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')  # `-s --`
    tini.chmod(0o755)
    options = {
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": str(tmp_path / "secret"),
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
        "spark.network.crypto.authEngineVersion": "2",
    }
    with socket.create_server(("127.0.0.1", 0)) as driver:
        place = {
            **{f"SPARK_JAVA_OPT_{n}": f"-D{name}={value}" for n, (name, value) in enumerate(options.items())},
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_EXECUTOR_MEMORY": "256m",
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{driver.getsockname()[1]}",
            "SPARK_EXECUTOR_ID": "1",
            "SPARK_EXECUTOR_CORES": "1",
            "SPARK_APPLICATION_ID": "tailrace",
            "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_EXECUTOR_POD_NAME": "exec-1",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = ["sh", str(images.ROOT / "tools" / "cluster" / "entrypoint.sh"), "executor"]
        with (
            (tmp_path / "log").open("wb") as log,
            subprocess.Popen(command, env=os.environ | place, stderr=log) as executor,
        ):
            driver.settimeout(120)
            connection, _ = driver.accept()
            connection.settimeout(60)
            with connection, connection.makefile("rb") as stream:
                first = stream.read(64)
            executor.kill()
    assert b"sparkSaslUser" in first, (tmp_path / "log").read_text()
