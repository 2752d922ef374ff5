"""The parts of the one-node cluster that need no cluster."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
from typing_extensions import override

from cluster import cgroups, node_files, places, workload
from cluster.__main__ import NAME, chosen, main, watch
from cluster.deploy import TRIES, Cluster, CommandFailed, waiting_reasons
from cluster.node import Node
from cluster.services import NotReady, Services
from cluster.signs_of_life import signs_of_life
from cluster.workload import Document
from tailrace.contract.resources import Replicator, SnapshotRequest

ENTRYPOINT = Path(places.__file__).with_name("entrypoint.sh")


def services(folder: Path) -> Services:
    return Services(folder, (), dict(os.environ))


def test_a_started_program_is_found_again_left_alone_and_ended(tmp_path: Path) -> None:
    one = services(tmp_path)
    one.start("sleeper", ["sleep", "60"])
    pid = one.pid("sleeper")
    assert pid is not None
    services(tmp_path).start("sleeper", ["sleep", "60"])
    assert services(tmp_path).pid("sleeper") == pid
    one.stop("sleeper", patience=5)
    assert not one.alive("sleeper")
    assert not (tmp_path / "sleeper.pid").exists()


def test_a_number_that_went_to_another_process_is_not_touched(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / "etcd.pid").write_text(f"{stranger.pid} 1")  # began with the system: it cannot be this one
        services(tmp_path).stop("etcd", patience=0.2)
        assert stranger.poll() is None
    finally:
        stranger.send_signal(signal.SIGKILL)
        stranger.wait()


def test_what_does_not_come_up_is_named_with_the_end_of_its_log(tmp_path: Path) -> None:
    one = services(tmp_path)
    one.start("broken", ["sh", "-c", "echo no such flag; exit 3"])
    with pytest.raises(NotReady, match="no such flag"):
        one.wait("broken", lambda: False, 1, "broken")


def test_control_groups_of_version_1_get_the_cpus_of_their_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cpuset" / "mine").mkdir(parents=True)
    for folder, value in ((tmp_path / "cpuset", "0-1\n"), (tmp_path / "cpuset" / "mine", "\n")):
        (folder / "cpuset.cpus").write_text(value)
    cgroups.make("mine")
    assert (tmp_path / "cpuset" / "mine" / "cpuset.cpus").read_text() == "0-1\n"


def test_two_clusters_share_no_file_no_namespace_and_no_control_group() -> None:
    one, two = Node("one"), Node("two")
    assert one.state != two.state
    assert one.namespace != two.namespace
    assert one.cgroup != two.cgroup
    assert json.loads(node_files.kubelet(one.state, one.cgroup))["cgroupRoot"] == f"/{one.cgroup}"


def test_the_documents_of_the_workload_are_valid_resources() -> None:
    Replicator.model_validate(workload.replicator("shop", deletionPolicy="Delete"))
    SnapshotRequest.model_validate(workload.snapshot_request("shop", "again", ["public.*"], chunkRows=10))


class Foreign(Cluster):
    """Somebody's cluster, with a namespace `shop`."""

    labels: ClassVar[dict[str, str]] = {}
    told: ClassVar[list[str]] = []

    @override
    def get(self, space: str, kind: str, name: str) -> Document | None:
        return {"metadata": {"name": name, "labels": self.labels}}

    @override
    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True, timeout: float = 180) -> str:
        self.told.append(" ".join(arguments))
        return ""


def test_a_namespace_that_is_somebody_elses_is_neither_used_nor_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Foreign(Path("config"), None)
    acts: tuple[Callable[[], None], ...] = (partial(cluster.prepare, "shop", "x"), partial(cluster.forget, "shop"))
    for act in acts:
        with pytest.raises(CommandFailed, match="namespace shop"):
            act()
    assert cluster.told == []
    monkeypatch.setattr(Foreign, "labels", workload.namespace("shop")["metadata"]["labels"])
    cluster.forget("shop")
    assert cluster.told[0].startswith("delete namespace shop")


def entrypoint(folder: Path, environment: dict[str, str], *arguments: str) -> list[str]:
    """What the image's entry point would run, a word per line."""
    tini = folder / "tini"
    tini.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    tini.chmod(0o755)
    plain = {"PATH": f"{folder}:{os.environ['PATH']}", **environment}
    done = subprocess.run(["sh", str(ENTRYPOINT), *arguments], env=plain, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_the_entry_point_runs_a_command_as_it_is(tmp_path: Path) -> None:
    assert entrypoint(tmp_path, {}, "tailrace", "run", "-f", "a b") == ["-s", "--", "tailrace", "run", "-f", "a b"]


def test_the_entry_point_gives_the_executor_its_options_in_order_and_unsplit(tmp_path: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dn={number} x" for number in range(12)}
    names = ("DRIVER_URL", "EXECUTOR_ID", "EXECUTOR_CORES", "APPLICATION_ID", "EXECUTOR_POD_IP", "EXECUTOR_MEMORY")
    described = {f"SPARK_{name}": name.lower() for name in (*names, "RESOURCE_PROFILE_ID", "EXECUTOR_POD_NAME")}
    words = entrypoint(tmp_path, {**options, **described, "SPARK_HOME": "/spark"}, "executor")
    assert words[:3] == ["-s", "--", "java"]
    assert words[3:15] == [f"-Dn={number} x" for number in range(12)]
    assert "-Xmxexecutor_memory" in words
    assert words[words.index("-cp") + 1] == "/spark/jars/*"
    assert words[words.index("--podName") + 1] == "executor_pod_name"


def test_what_keeps_a_pod_from_starting_is_told() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    statuses = [{"image": "a:1", "state": waiting}, {"image": "b:1", "state": {"running": {}}}]
    pod = {"metadata": {"name": "p"}, "status": {"containerStatuses": statuses}}
    told = waiting_reasons([pod, {"metadata": {"name": "q"}}])
    assert told[0] == "pod p, image a:1: ImagePullBackOff: not found"
    assert len(told) == 2 and "kind load" in told[1]
    assert waiting_reasons([{"metadata": {"name": "q"}}]) == []


def test_pods_that_found_no_place_are_told_with_the_reason() -> None:
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."}
    placed = {"type": "PodScheduled", "status": "True"}
    no_place = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes."}
    pods: list[Document] = [
        {"metadata": {"name": "p"}, "status": {**evicted, "conditions": [placed]}},
        {"metadata": {"name": "q"}, "status": {"phase": "Pending", "conditions": [no_place]}},
        {"metadata": {"name": "r"}, "status": {"phase": "Running", "conditions": [placed]}},
    ]
    assert waiting_reasons(pods) == [
        "pod p: Evicted: The node was low on resource: ephemeral-storage.",
        "pod q: Unschedulable: 0/1 nodes.",
    ]


def test_the_kubeconfig_of_the_own_node_means_the_own_cluster(tmp_path: Path) -> None:
    """As `make cluster` tells people to set it: `make cluster-down` in that shell takes the node down."""
    own = Cluster.own(NAME)
    assert chosen(str(own.kubeconfig)) == chosen("") == chosen(None) == own
    assert chosen(str(tmp_path / "kubeconfig")) == Cluster.given(tmp_path / "kubeconfig")


def test_work_that_takes_long_gives_signs_of_life_until_it_is_over() -> None:
    said: list[str] = []
    with pytest.raises(OSError), signs_of_life("building it", said.append, 0.01):
        time.sleep(0.2)
        raise OSError
    assert said[0].startswith("still building it: ")
    count = len(said)
    time.sleep(0.05)
    assert len(said) == count


def test_one_address_lent_twice_ends_with_its_own_block_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = services(tmp_path / "services")

    def forward(node: Node, name: str, host: str, port: int) -> int:
        folder.start(name, ["sleep", "60"])
        return folder.pid(name) or 0

    monkeypatch.setattr(places, "cluster_dir", lambda _: tmp_path)
    monkeypatch.setattr(Node, "_start_forward", forward)
    node = Node("any")
    with subprocess.Popen(["true"]) as ended:
        pass
    folder.start(f"lent-{ended.pid}-left", ["sleep", "60"])
    with node.lend("10.0.0.1", 5432) as first:
        assert not folder.alive(f"lent-{ended.pid}-left"), "its process was killed"
        with node.lend("10.0.0.1", 5432) as second:
            assert first != second
        assert [file.stem for file in folder.folder.glob("*.pid") if folder.alive(file.stem)]
        assert folder.pid(next(folder.folder.glob("lent-*.pid")).stem) == first
    assert not list(folder.folder.iterdir()), "neither a process nor a file is left"


@pytest.mark.parametrize("error", [psycopg.OperationalError("server closed\n\tthe connection"), psycopg.Error()])
def test_a_database_that_goes_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: psycopg.Error
) -> None:
    def up(self: Cluster, say: object) -> None:
        raise error

    monkeypatch.setattr(Cluster, "up", up)
    monkeypatch.setattr("sys.argv", ["cluster", "up"])
    assert main() == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said and "make cluster" in said
    assert ("server closed the connection" in said) == bool(str(error))


def test_a_stalled_resource_ends_the_wait_with_its_message_and_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stalled = {"type": "Stalled", "status": "True", "message": "Another database."}
    cluster = Foreign(Path("config"), None)
    monkeypatch.setattr(Foreign, "get", lambda *_: {"status": {"conditions": [stalled]}})
    with pytest.raises(CommandFailed, match=r"stalled: Another database\. .*make cluster-down"):
        watch(cluster, "replicator/shop", "InitialSnapshotCompleted", lambda _: None, pause=0)


def test_the_volume_of_a_deleted_claim_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster, made = Foreign(Path("config"), Node("x")), list[str]()
    monkeypatch.setattr(workload, "volume_folder", lambda *_: tmp_path)
    monkeypatch.setattr(workload, "USER", os.getuid())
    monkeypatch.setattr(Foreign, "apply", lambda *_: made.append("applied"))

    def said(_: Cluster, *arguments: str, **__: object) -> str:
        made.append(" ".join(arguments))
        return ""

    for phase, deleted in (("Bound", False), ("Released", True)):
        made.clear()
        disk = {"metadata": {"name": "shop-shop-data"}, "status": {"phase": phase}}
        monkeypatch.setattr(Foreign, "get", lambda *_, disk=disk: disk)
        monkeypatch.setattr(Foreign, "kubectl", said)
        cluster.prepare("shop", "x")
        assert (made[0] == "delete persistentvolume shop-shop-data") is deleted


def test_what_a_busy_api_server_was_not_asked_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, asked = "Unable to connect to the server: net/http: TLS handshake timeout", tmp_path / "asked"
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\necho >> {asked}; [ $(wc -l < {asked}) = 3 ] || {{ echo {said!r} >&2; exit 1; }}")
    program.chmod(0o755)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(places, "program", lambda _: program)
    made = Cluster(tmp_path, None)
    made.kubectl("get", "pods")
    assert asked.read_text().count("\n") == 3
    with pytest.raises(CommandFailed, match="TLS handshake timeout"):
        made.kubectl("get", "pods")
    assert asked.read_text().count("\n") == 3 + TRIES
