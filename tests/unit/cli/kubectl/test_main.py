"""`kubectl tailrace` starts quickly: it imports nothing of the data plane, and no model."""

import subprocess
import sys

import pytest

from tailrace.cli.kubectl import applied, commands, main
from tailrace.cli.kubectl.cluster import REPLICATORS, REQUESTS
from tailrace.contract.resources import API_VERSION, GROUP
from tailrace_operator.observe.model import PAUSED
from tailrace_operator.resources import names

SLOW = ("pydantic", "pyspark", "pyarrow", "rich", "kubernetes", "aiohttp", "kopf")
PROGRAM = f"""
import sys
from tailrace.cli.kubectl import applied, commands, main
main.parser()
print([name for name in {SLOW} if name in sys.modules])
"""


def test_it_imports_no_package_that_takes_long() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_its_names_are_those_of_the_contract_and_of_the_operator() -> None:
    assert (f"replicators.{GROUP}", f"snapshotrequests.{GROUP}") == (REPLICATORS, REQUESTS)
    assert API_VERSION == "tailrace.dev/v1alpha1"
    assert commands.PAUSE_ANNOTATION == PAUSED
    assert applied.OPERATOR == names.MANAGER
    assert f"/etc/tailrace/replicator/{names.MANIFEST_KEY}" == commands.MANIFEST


@pytest.mark.parametrize("arguments", [(), ("status", "--wach"), ("pause", "everything", "shop"), ("snapshot", "shop")])
def test_a_wrong_command_line_ends_with_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(arguments)
    assert ended.value.code == 2
    assert "kubectl tailrace" in capsys.readouterr().err


def test_a_name_does_not_go_with_all_namespaces(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["status", "shop", "-A"]) == 2
    assert "--all-namespaces does not go with a name" in capsys.readouterr().err


def test_a_line_of_the_log_is_shown_as_people_read_it() -> None:
    document = '{"time": 0.5, "level": "info", "logger": "tailrace", "message": "started"}\n'
    assert commands._line(document) == "1970-01-01T00:00:00Z info    started"
    assert commands._line("no JSON\n") == "no JSON"
