"""A certificate authority for one cluster: keys, certificates and kubeconfig files in a folder.

`openssl` makes them; EC keys, because RSA keys take seconds on a busy machine. Called by `control.py` and `node.py`.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

CONFIG = "[req]\ndistinguished_name = dn\nprompt = no\n[dn]\n"
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")
DAYS = "30"

KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: tailrace, cluster: {{server: "{server}", certificate-authority: {folder}/ca.crt}}}}]
users: [{{name: {name}, user: {{client-certificate: {folder}/{name}.crt, client-key: {folder}/{name}.key}}}}]
contexts: [{{name: tailrace, context: {{cluster: tailrace, user: {name}}}}}]
current-context: tailrace
"""


class Authority:
    """Makes what is missing: a folder that is complete is left as it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._config = folder / "openssl.cnf"
        self._config.write_text(CONFIG)
        if not (folder / "ca.crt").exists():
            usage = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
            self._request("ca", "/CN=tailrace-cluster", usage)
        if not (folder / "sa.pub").exists():
            key, public = str(folder / "sa.key"), str(folder / "sa.pub")
            _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
            _openssl("ec", "-in", key, "-pubout", "-out", public)

    def server(self, name: str, common_name: str, hosts: Sequence[str]) -> None:
        """A serving certificate; `hosts` are `DNS:…` and `IP:…`."""
        self._signed(name, f"/CN={common_name}", ("extendedKeyUsage=serverAuth", f"subjectAltName={','.join(hosts)}"))

    def client(self, name: str, user: str, group: str = "") -> None:
        """A client certificate for a Kubernetes user."""
        self._signed(name, (f"/O={group}" if group else "") + f"/CN={user}", ("extendedKeyUsage=clientAuth",))

    def kubeconfig(self, name: str, server: str) -> Path:
        """The kubeconfig of a client certificate."""
        path = self.folder / f"{name}.conf"
        path.write_text(KUBECONFIG.format(name=name, server=server, folder=self.folder))
        path.chmod(0o600)
        return path

    def _signed(self, name: str, subject: str, extensions: Sequence[str]) -> None:
        if not (self.folder / f"{name}.crt").exists():
            common = ("basicConstraints=CA:FALSE", "keyUsage=digitalSignature")
            by = ("-CA", str(self.folder / "ca.crt"), "-CAkey", str(self.folder / "ca.key"))
            self._request(name, subject, (*common, *extensions), by)

    def _request(self, name: str, subject: str, extensions: Sequence[str], by: Sequence[str] = ()) -> None:
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        added = [part for extension in extensions for part in ("-addext", extension)]
        files = ("-config", str(self._config), "-keyout", str(key), "-out", str(certificate))
        _openssl("req", "-x509", *by, *NEW_KEY, "-days", DAYS, "-subj", subject, *added, *files)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} ended with {done.returncode}: {done.stderr.strip()}")
