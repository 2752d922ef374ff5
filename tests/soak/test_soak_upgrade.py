"""From an earlier version of Tailrace to this one and back, with its real CRDs, operator and driver.

The earlier one is the newest tag or, before there is any, what the branch was a day ago; `TAILRACE_SOAK_BEFORE` names
another commit. Both run with the libraries of this one.
"""

import os
import subprocess
from pathlib import Path

import pytest

from support.operator_namespace import install_crds
from support.operator_process import IMAGE, ROOT
from support.postgres import PostgresServer
from support.real_replicator import REPL, Cluster, Shop, cluster
from support.waiting import until

OLD_IMAGE = "registry.example/tailrace-spark:0"


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tags = git("tag", "--merged", "HEAD", "--sort=-creatordate").split()
    day = git("rev-list", "-1", "--before=24 hours ago", "HEAD")
    chosen = os.environ.get("TAILRACE_SOAK_BEFORE") or (tags[0] if tags else day)
    folder = tmp_path_factory.mktemp("earlier")
    packed = subprocess.run(["git", "-C", ROOT, "archive", chosen], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
    print(f"\nthe earlier version is {git('log', '-1', '--format=%h of %ci', chosen)}")
    return folder


class Versions:
    """A cluster whose CRDs, operator and default image change."""

    def __init__(self, here: Cluster, earlier: Path) -> None:
        self.here, self.earlier = here, earlier
        here.kubelet.images[OLD_IMAGE] = earlier

    def take(self, tree: Path, image: str) -> None:
        """The chart of this tree, with this image for drivers."""
        process = self.here.process
        self._works()
        assert process.stop(60) == 0
        install_crds(self.here.place.kube, tree / "crds")
        process.tree, process.image = tree, image
        process.start()
        self._works()

    def _works(self) -> None:
        until(lambda: self.here.process.get("/healthz")[0] == 200, "the operator works")

    def starts(self) -> int:
        """Of drivers, so far."""
        return sum(1 + pod.restarts for pod in self.here.kubelet.pods)

    def equal(self) -> None:
        self.here.shop.write()
        self.here.equal()


@pytest.mark.timeout(3600)
def test_an_upgrade_restarts_each_driver_once_and_going_back_loses_nothing(
    postgres: PostgresServer, tmp_path: Path, earlier: Path
) -> None:
    shop = Shop(postgres, tmp_path / "shop")
    with cluster(shop, tmp_path / "here", "upgrade", "127.0.31.9", earlier) as here:
        versions = Versions(here, earlier)
        versions.take(earlier, OLD_IMAGE)
        here.apply(executors={"count": 0})  # both versions read it
        versions.equal()
        snapshots, before = shop.snapshots(), versions.starts()

        versions.take(ROOT, OLD_IMAGE)
        versions.equal()
        here.patch(tables={"include": ["public.*"], "exclude": ["public.none"]})
        versions.equal()
        assert versions.starts() == before, "the operator's upgrade restarts nothing"

        versions.take(ROOT, IMAGE)
        until(lambda: versions.starts() == before + 1, "the driver has the new image", 300)
        versions.equal()
        here.patch(options=[{"match": "public.accounts", "onUnsupported": "SetNull"}])
        versions.equal()

        versions.take(earlier, OLD_IMAGE)
        until(lambda: versions.starts() == before + 2, "the driver has the old image", 300)
        versions.equal()
        assert shop.snapshots() == snapshots, "nothing is read again"

        versions.take(ROOT, IMAGE)
        until(lambda: versions.starts() == before + 3, "the driver has the new image again", 300)
        versions.equal()
        assert shop.snapshots() == snapshots, "nothing is read again"
        here.nothing_unexpected()
        print(here.place.kubectl("get", REPL))
