"""A ring that is closed as docs/operations.md has it: TLS everywhere, and tokens."""

import os
import secrets
import ssl
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference.certificates import Files

import barco
from barco.errors import BarcoError
from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster

ROOT = "barco_root"
SIZE = 3


@dataclass
class Closed(LocalCluster):
    """Three brokers with TLS everywhere, that ask for tokens; some for clients' certificates."""

    asking: Sequence[int] = ()
    """Which ones."""
    among: bool = False
    """They take a broker's for a client's, too."""

    def write(self, brokers: int = 0) -> None:
        super().write(brokers)
        made = self.root / "certs"
        command = [self.python, "-P", "-m", "barco", "certs", "client", "app", "--dir", str(made)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        trusted = ("clients-ca", "ca") if self.among else ("clients-ca",)
        (made / "trusted.crt").write_text(
            "".join((made / f"{name}.crt").read_text() for name in trusted)
        )
        for ordinal in range(SIZE):
            lines = f'\n[tls]\ncertificate = "{made}/broker-{ordinal}.crt"\n'
            lines += f'key = "{made}/broker-{ordinal}.key"\n'
            if ordinal in self.asking:
                lines += f'client_ca = "{made}/trusted.crt"\n'
            with self.config(ordinal).open("a") as file:
                file.write(f"{lines}\n[access]\nrequired = true\n")
            self.data(ordinal).mkdir(mode=0o700, parents=True, exist_ok=True)
            add(self.data(ordinal) / NAME, "root", hash_of(ROOT).hex())

    def made(self, name: str) -> Files:
        """What `barco certs` has made."""
        where = self.root / "certs"
        return Files(where / f"{name}.crt", where / f"{name}.key")

    def context(self, shown: Files | None = None) -> ssl.SSLContext:
        """Of a client that trusts the cluster's authority, and shows this."""
        context = ssl.create_default_context(cafile=self.made("ca").certificate)
        if shown is not None:
            context.load_cert_chain(shown.certificate, shown.key)
        return context

    def access(self, *by: int, token: str = ROOT) -> barco.Access:
        """Of some brokers, with the certificate of a client."""
        app = self.made("client-app")
        return barco.Access.of(
            [f"https://{self.hosts[each]}:9250" for each in by],
            ca=str(self.made("ca").certificate),
            token=token,
            certificate=str(app.certificate),
            key=str(app.key),
        )

    def root_user(self, *by: int) -> barco.Admin:
        """The administrator's client."""
        return barco.Admin(self.access(*by), timeout_s=20.0)

    def status(self, ordinal: int) -> dict[str, Any]:
        try:
            with barco.Admin(self.access(ordinal), timeout_s=20.0) as admin:
                return dict(admin.status())
        except BarcoError:
            return {}


def closed_ring(root: Path, asking: Sequence[int] = (), *, among: bool = False) -> Closed:
    """On addresses that nobody else has, and not started."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(SIZE))
    found = Closed(root, hosts=hosts, tied=True, mutual=True, asking=asking, among=among)
    found.write()
    return found
