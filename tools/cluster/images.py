"""The images of the one-node cluster: built by buildah from the Dockerfile, kept as archives, imported by containerd.

No registry of images is needed: the base is Debian's own packages (debootstrap), wheels come from where pip is told to
get them, Spark's jars are those that `make setup` fetched. An image whose sources are the same is not built again.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tailrace import __version__
from tailrace.spark import artifacts

from . import debian, places
from .node_files import COREDNS_IMAGE, PAUSE_IMAGE

ROOT = Path(__file__).resolve().parents[2]
BASE_IMAGE = "localhost/tailrace-base:bookworm"
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv", "openjdk-17-jre-headless", "tini")
NAMES = {
    "pause": PAUSE_IMAGE,
    "coredns": COREDNS_IMAGE,
    "operator": f"localhost/tailrace-operator:{__version__}",
    "spark": f"localhost/tailrace-spark:{__version__}",
}
LABEL = "tailrace.dev/sources-of-{}"
"""The label of one of NAMES in containerd; its value is the digest of what the image was built from."""
CLASSES = "opt/tailrace/cache/classes-*"
"""The archive of classes in the image `spark`, without the slash before it."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def is_missing(name: str) -> bool:
    """There is no archive of one of NAMES that was built from the present sources."""
    archive, stamp = archive_of(name), _stamp_of(name)
    return not (archive.exists() and stamp.exists() and stamp.read_text() == _digest(name))


def build(name: str) -> None:
    """Make the archive of one of NAMES."""
    archive, stamp, wanted = archive_of(name), _stamp_of(name), _digest(name)
    archive.parent.mkdir(parents=True, exist_ok=True)
    if name in ("pause", "coredns"):
        _from_program(name)
    else:
        _base()
        _from_dockerfile(name)
    if name == "spark":
        _keep_classes()
    stamp.unlink(missing_ok=True)
    archive.unlink(missing_ok=True)
    # Docker's format is not compressed (OCI's always is): the archive is only for the containerd of this machine.
    _buildah("push", "-q", NAMES[name], f"docker-archive:{archive}:{NAMES[name]}")
    stamp.write_text(wanted)
    _buildah("rmi", "--prune")  # layers of former sources, 100 MB and more each time


def archive_of(name: str) -> Path:
    return places.images_dir() / f"{name}.tar"


def _stamp_of(name: str) -> Path:
    """Holds the digest of what the archive was built from."""
    return archive_of(name).with_suffix(".stamp")


def load(ctr: Callable[..., subprocess.CompletedProcess[str]], names: Sequence[str]) -> None:
    """Hand the archives to containerd through `ctr`, its command line; an image that it has already is passed over."""
    listed = ctr("images", "ls").stdout
    for name in names:
        label = f"{LABEL.format(name)}={_stamp_of(name).read_text()}"
        if label not in listed:
            ctr("images", "import", str(archive_of(name)))
            ctr("images", "label", NAMES[name], label)


def _digest(name: str) -> str:
    """The digest of everything that the image is made from."""
    if name in ("pause", "coredns"):
        return places.kubernetes_dir().name
    files = ("Dockerfile", "constraints.txt", "pyproject.toml", "tools/requirements.py", "tools/cluster/entrypoint.sh")
    sources = [ROOT / file for file in files]
    for folder in ("spark_app", "operator"):
        inside = sorted(path for path in (ROOT / folder).rglob("*") if path.is_file())
        sources += [path for path in inside if "__pycache__" not in path.parts]
    named = (*BASE_PACKAGES, *(artifacts.jar_set_dir(jars).name for jars in artifacts.JAR_SETS))
    found = hashlib.sha256("\n".join(named).encode())
    for path in sources:
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _from_program(name: str) -> None:
    text = f'FROM scratch\nCOPY {name} /{name}\nUSER 65532:65532\nENTRYPOINT ["/{name}"]\n'
    if name == "coredns":
        text = text.replace("USER 65532:65532\n", "")  # it listens on port 53
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "Dockerfile").write_text(text)
        _buildah("bud", "-q", "-t", NAMES[name], "-f", f"{scratch}/Dockerfile", str(places.kubernetes_dir()))


def _base() -> None:
    """Debian's Python and Java, straight into an image: owners and modes stay as debootstrap makes them."""
    if _buildah("images", "-q", BASE_IMAGE, check=False).strip():
        return
    container = _buildah("from", "scratch").strip()
    folder = _buildah("mount", container).strip()
    packages = f"--include={','.join(BASE_PACKAGES)}"
    _run(["debootstrap", "--variant=minbase", packages, "bookworm", folder, *_mirror()])
    for left in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        _run(["find", f"{folder}/{left}", "-mindepth", "1", "-delete"])
    _buildah("umount", container)
    _buildah("config", "--env", "LANG=C.UTF-8", "--cmd", "python3", container)
    _buildah("commit", "-q", "--rm", container, BASE_IMAGE)


def _mirror() -> list[str]:
    """The mirror from which this machine's apt gets Debian; empty: debootstrap's own default."""
    for path in (Path("/etc/apt/sources.list.d/debian.sources"),):
        for line in path.read_text().splitlines() if path.exists() else ():
            if line.startswith("URIs:"):
                return [line.split()[1]]
    return []


def _from_dockerfile(target: str) -> None:
    with _jars() as jars, tempfile.TemporaryDirectory() as scratch:
        wheels = sorted(artifacts.cache_dir().glob("wheel-pyspark-*"))
        (Path(scratch) / "pip.conf").write_text(_pip_settings(wheels))
        mounts = [f"{folder}:{folder}:ro" for folder in wheels]
        mounts += [f"{scratch}/pip.conf:/etc/pip.conf:ro"]
        mounts += [f"{CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.exists() else []
        volumes = [part for mount in mounts for part in ("-v", mount)]
        # No container runtime is needed to build: a changed root is enough. The network is the machine's.
        options = ("bud", "-q", "--layers", "--isolation", "chroot", "--build-arg", f"BASE={BASE_IMAGE}")
        context = ("--build-context", f"jars-fetched={jars}")
        arguments = (*options, *volumes, *context, "--target", target, "-t", NAMES[target], str(ROOT))
        _buildah(*arguments, before=_with_libraries())


@contextmanager
def _jars() -> Iterator[Path]:
    """A folder `jars` with links to what `make setup` fetched, and to the last build's archive of classes: it replaces
    the stage of the Dockerfile that fetches."""
    with tempfile.TemporaryDirectory(dir=places.images_dir()) as scratch:
        for source in (*map(artifacts.jar_set_dir, artifacts.JAR_SETS), *_kept_classes().glob("*")):
            into = Path(scratch) / "jars" / source.name
            into.mkdir(parents=True)
            for path in source.iterdir():
                (into / path.name).hardlink_to(path)
        yield Path(scratch)


def _kept_classes() -> Path:
    return places.images_dir() / "classes"


def _keep_classes() -> None:
    """Keep the image's archive of classes for the next build: to make it costs as much as all else. The build makes it
    again if Java or Spark's jars have changed."""
    container = _buildah("from", NAMES["spark"]).strip()
    folder = Path(_buildah("mount", container).strip())
    with tempfile.TemporaryDirectory(dir=places.images_dir()) as scratch:
        for made in sorted(folder.glob(CLASSES), key=lambda one: one.stat().st_mtime)[-1:]:  # not an older Java's
            shutil.copytree(made, Path(scratch) / "classes" / made.name)
            shutil.rmtree(_kept_classes(), ignore_errors=True)
            (Path(scratch) / "classes").rename(_kept_classes())
    _buildah("rm", container)


def _pip_settings(wheels: Sequence[Path]) -> str:
    """This machine's settings of pip that say where packages come from, for the pip inside. `wheels`: folders with
    PySpark's, as `make setup` keeps it: of PySpark only the source is published, and it takes a minute to build."""
    listed = _run(["python3", "-m", "pip", "config", "list"], check=False)
    wanted = ("index-url", "extra-index-url", "trusted-host", "cert")
    found = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name in wanted:
            found[name] = value.strip("'")
    found |= {"find-links": " ".join(map(str, wheels))} if wheels else {}
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in found.items())


def _with_libraries() -> list[str]:
    """buildah starts itself again inside the image's root, without our environment: for that process the unpacked
    libraries lie over the system's own, in a mount namespace that ends with it."""
    ours = next(iter(sorted(places.node_tools_dir().glob("usr/lib/*-linux-gnu*"))))
    system = f"/usr/lib/{ours.name}"
    script = f'mount -t overlay overlay -o lowerdir={ours}:{system} {system} && exec "$@"'
    return ["unshare", "--mount", "sh", "-ec", script, "sh"]


def _buildah(*arguments: str, check: bool = True, before: Sequence[str] = ()) -> str:
    home = places.images_dir() / "buildah"
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    (home / "storage.conf").write_text('[storage]\ndriver = "overlay"\n')
    tools = places.node_tools_dir()
    environment = {
        "TMPDIR": str(home / "tmp"),
        "CONTAINERS_STORAGE_CONF": str(home / "storage.conf"),
        "CONTAINERS_CONF": str(tools / "usr/share/containers/containers.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(tools / "etc/containers/registries.conf"),
    }
    policy = ("--signature-policy", str(tools / "etc/containers/policy.json"))
    command = [*before, "buildah", "--root", str(home / "root"), "--runroot", str(home / "run"), arguments[0]]
    if arguments[0] in ("bud", "push", "commit", "from"):
        command += policy
    return _run([*command, *arguments[1:]], environment, check=check)


def _run(command: Sequence[str], more: dict[str, str] | None = None, *, check: bool = True) -> str:
    environment = debian.environment(os.environ) | (more or {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if check and done.returncode:
        said = (done.stderr + done.stdout)[-3000:]
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}: {said}")
    return done.stdout
