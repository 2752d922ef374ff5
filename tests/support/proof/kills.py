"""Lives of a driver that end by SIGKILL: at seams, from outside, and all processes at once."""

import time
from collections.abc import Callable
from random import Random

import psutil

from support.proof.process import Deployment

SEAMS = (
    "capture.after-segments",
    "journal.before-create",
    "journal.after-create",
    "capture.before-ack",
    "chunk.before-snapshot",
    "chunk.after-snapshot",
    "chunk.after-read",
    "snapshot.after-plan",
    "snapshot.before-register",
    "snapshot.after-register",
    "apply.before-commit",
    "apply.after-commit",
    "compact.before-commit",
)


def live_and_die(
    deployment: Deployment, tables: str, random: Random, life: int, disturb: Callable[[], None] | None = None
) -> int:
    """One driver's life: some seams kill, then a process is killed from outside, then all of them. `tables`: a pattern,
    of those that are read again meanwhile. `disturb`: also done every few seconds. Returns the number of kills."""
    plan = ",".join(f"{seam}=kill@{random.randint(1, 6)}" for seam in random.sample(SEAMS, 3))
    request = deployment.request(f"again-{life}", tables=[tables], chunkRows=random.randint(5, 60))
    run = deployment.start("-f", str(request), seams=plan)
    print(f"life {life}: {plan}")
    kills = 1
    end = time.monotonic() + random.uniform(15, 40)
    while time.monotonic() < end and run.process.poll() is None:
        time.sleep(random.uniform(2, 8))
        if disturb is not None:
            disturb()
        children = run.family()[1:]
        if children and random.random() < 0.5:
            try:
                random.choice(children).kill()
                kills += 1
            except psutil.NoSuchProcess:
                continue
    run.kill()
    return kills + len(list(deployment.marks.iterdir()))
