"""Spark's log on Kubernetes: each line of the container's log is a document, whatever the JVM prints."""

import json
import subprocess
import threading
from pathlib import Path

from tailrace.spark import jvm_log

EVENT = '{"time":1.5,"level":"warning","logger":"o.a.s.X","message":"m"}'
PRINTED = ("plain words", "[1, 2]", "", '{"cut', 'ä \\ "')


def test_each_line_of_the_jvm_is_passed_on_as_one_document() -> None:
    lines: list[str] = []
    ended = threading.Event()

    def write(line: str) -> None:
        lines.append(line)
        if "last" in line:
            ended.set()

    forwarder = jvm_log.Forwarder(write)
    text = "\n".join((EVENT, *PRINTED, "last"))
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=forwarder.pipe) as jvm:
        forwarder.start()
        jvm.communicate(text.encode())
    assert ended.wait(10)
    found = [json.loads(line) for line in lines]
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)
    assert found[0] == json.loads(EVENT)
    assert [one["message"] for one in found[1:]] == [*filter(None, PRINTED), "last"]
    assert all(one.keys() == {"time", "level", "logger", "message"} for one in found)


def test_on_one_machine_the_log_is_a_file_alone() -> None:
    alone, both = (jvm_log.configuration(Path("/run/spark.log"), forwarded) for forwarded in (False, True))
    assert "JsonTemplateLayout" not in alone and "/run/spark.log" in alone
    assert both.startswith(alone) and "SYSTEM_OUT" in both
