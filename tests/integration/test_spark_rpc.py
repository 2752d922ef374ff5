"""The driver's own Spark session: who may talk to it, and from where."""

import subprocess
import sys
from pathlib import Path

import psutil

from support.proof.process import ENVIRONMENT
from support.stranger import ask, is_refused

SESSION = """
import sys
from pathlib import Path
from tailrace.contract.resources import ReplicatorSpec
from tailrace.run import session

folder = Path(sys.argv[1])
place = {"location": f"file://{folder}/lake"}
spec = ReplicatorSpec.model_validate({
    "source": {"type": "postgresql", "host": "h", "database": "d", "username": "u"}, "tables": {"include": ["a.b"]},
    "target": {"type": "delta", **place}, "storage": {"location": f"file://{folder}/log"}})
spark = session.start(spec, folder, folder / "spark.log")
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
