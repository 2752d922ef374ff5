"""`kubectl tailrace` as its users run it: kubectl finds the installed script in PATH."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cluster import places

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Plugin:
    folder: Path
    """In PATH: kubectl and the script."""
    kubeconfig: Path
    namespace: str

    @classmethod
    def installed(cls, folder: Path, kubeconfig: Path, namespace: str) -> "Plugin":
        folder.mkdir()
        (folder / "kubectl").symlink_to(places.program("kubectl"))
        script = folder / "kubectl-tailrace"
        script.write_text(f"#!{sys.executable}\nfrom tailrace.cli.start import kubectl\nkubectl()\n")
        script.chmod(0o755)
        return cls(folder, kubeconfig, namespace)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "spark_app"),
        }

    def start(self, verb: str, *arguments: str) -> subprocess.Popen[str]:
        # A shell starts what it runs in the background with Ctrl-C ignored, and that is inherited.
        shell = ["env", "--default-signal=INT"]
        command = [*shell, str(self.folder / "kubectl"), "tailrace", verb, "-n", self.namespace, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environment(), stdout=pipe, stderr=pipe, text=True)

    def __call__(self, verb: str, *arguments: str, code: int = 0) -> str:
        """What it prints; a refusal's text too."""
        with self.start(verb, *arguments) as process:
            out, errors = process.communicate(timeout=120)
        assert process.returncode == code, f"{process.returncode}: {out}{errors}"
        assert "Traceback" not in errors
        return out + errors
