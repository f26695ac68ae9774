"""Pods as packaging/kubernetes/closed has them, with the Secrets that docs/kubernetes.md makes: TLS
for clients and between brokers, a token for each request."""

import http.client
import json
import os
import re
import secrets
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_kubernetes import ApiServer, Pods

import barco
from barco.errors import BarcoError

pytestmark = pytest.mark.chaos  # A minute of brokers that start; what decides is tested by itself.

ROOT = Path(__file__).parents[2]
PACKAGED = ROOT / "packaging" / "kubernetes" / "closed"
SIZE = 3


class ClosedPods(Pods):
    """Each has folders of its own in the place of the volumes of a pod."""

    def volume(self, ordinal: int, path: str) -> Path:
        """Where a path of a pod is; Secrets are the same for all."""
        shared = path.split("/")[1] in ("certs", "users", "secret")
        return self.root / ("shared" if shared else f"pod-{ordinal}") / path.lstrip("/")

    def placed(self, ordinal: int, text: str) -> str:
        """A text of the manifests, with the paths of this pod."""
        paths = ("/run/barco", "/certs", "/users", "/secret", "/var/lib/barco")
        found = re.compile(rf"(?<![\\w/])({'|'.join(paths)})(?=/)")
        return found.sub(lambda match: str(self.volume(ordinal, match[1])), text)

    def configure(self, ordinal: int) -> None:
        """The pod's file is that of the ConfigMap, and small as those of tests are."""
        text = self.placed(ordinal, (PACKAGED / "barco.toml").read_text())
        broker = (
            f'[broker]\ndata_dir = "{self.volume(ordinal, "/var/lib/barco")}/data"\nworkers = 1'
        )
        small = "[limits]\nmemory_bytes = 67108864\n[storage]\nsegment_bytes = 33554432"
        self.config(ordinal).write_text(f"{broker}\n{text}\n{small}\n")

    def initiate(self, ordinal: int, script: str) -> None:
        """What the init container does."""
        for path in ("/run/barco", "/var/lib/barco"):
            self.volume(ordinal, path).mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["sh", "-euc", self.placed(ordinal, script)],
            env=os.environ | {"POD_NAME": f"barco-{ordinal}"},
            check=True,
            timeout=60,
        )

    def admin(self, ordinal: int) -> barco.Admin:
        """Of who has the token of the Secret."""
        token = (self.volume(0, "/users") / "token").read_text().strip()
        ca = self.volume(0, "/certs") / "ca.crt"
        endpoint = f"https://{self.hosts[ordinal]}:9250"
        return barco.Admin(barco.Access.of(endpoint, token, ca=str(ca)), timeout_s=2.0)

    def status(self, ordinal: int) -> dict[str, Any]:
        try:
            with self.admin(ordinal) as admin:
                return dict(admin.status())
        except BarcoError:
            return {}


def manifest() -> Any:
    """The patch of the StatefulSet, and so the pod."""
    return yaml.safe_load((PACKAGED / "statefulset.yaml").read_text())["spec"]["template"]["spec"]


def make_secrets(pods: ClosedPods) -> None:
    """As the page has it, but for the cluster's own, and for kubectl."""
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    (block,) = re.findall(r"```\n(uuid=.*?)```", page, re.DOTALL)
    lines = [each for each in block.splitlines() if not each.startswith("kubectl")]
    # The StatefulSet of these tests is ns/barco.
    text = "\n".join(lines).replace("kubernetes barco/barco", "kubernetes ns/barco")
    for ordinal in range(SIZE):
        text = text.replace(f"10.77.0.{ordinal + 1}", pods.hosts[ordinal])
    shared = pods.root / "shared"
    shared.mkdir()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euc", f"umask 077\n{text}\nmv token users"],
        cwd=shared,
        env=os.environ | {"PATH": path},
        check=True,
        capture_output=True,
        timeout=120,
    )
    (shared / "secret").mkdir()
    (shared / "secret" / "secret").write_text(secrets.token_hex(32))


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[ClosedPods]:
    """They run."""
    program, python = Path(__file__).with_name("pods.py"), tmp_path / "python"
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(SIZE))
    with ApiServer(tmp_path) as server:
        made = ClosedPods(tmp_path, hosts=hosts, tied=True, python=str(python))
        made.server = server
        environment = f"KUBECONFIG={server.kubeconfig} PODS_NAMES={tmp_path}/names"
        environment += f" BARCO_CA={made.volume(0, '/certs')}/ca.crt"
        environment += f" BARCO_TOKEN_FILE={made.volume(0, '/users')}/token"
        python.write_text(
            f'#!/bin/sh\nshift 3\nexec env {environment} {sys.executable} -P {program} "$@"\n'
        )
        python.chmod(0o700)
        make_secrets(made)
        script = manifest()["initContainers"][0]["command"][-1]
        try:
            for ordinal in range(SIZE):
                made.configure(ordinal)
                made.initiate(ordinal, script)
            made.schedule(*range(SIZE))
            for ordinal in range(SIZE):
                made.start(ordinal)
            made.wait_ready()
            yield made
        finally:
            for ordinal in range(SIZE):
                made.kill(ordinal)


def probed(pods: ClosedPods, ordinal: int, path: str) -> int:
    """As a kubelet does it: it looks at no certificate, and has no token."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    link = http.client.HTTPSConnection(pods.hosts[ordinal], 9250, timeout=20, context=context)
    try:
        link.request("GET", path, headers={"User-Agent": "kube-probe/1.37"})
        return link.getresponse().status
    finally:
        link.close()


def test_three_pods_are_a_closed_cluster(pods: ClosedPods) -> None:
    (broker,) = manifest()["containers"]
    for ordinal in range(SIZE):
        pods.wait_in_sync(ordinal)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert probed(pods, ordinal, broker[probe]["httpGet"]["path"]) == 200
        assert probed(pods, ordinal, "/v1/brokers") == 401
        told = pods.status(ordinal)
        assert told["mutualTls"]["refusesPlain"] and told["tls"] and not told.get("openToAll")
        key = pods.volume(ordinal, "/run/barco") / "broker.key"
        assert key.stat().st_mode & 0o777 == 0o600
    shown = {each["name"]: each["value"] for each in broker["env"] if "value" in each}
    environment = {name: pods.placed(0, shown[name]) for name in ("BARCO_CA", "BARCO_TOKEN_FILE")}
    endpoint = shown["BARCO_ENDPOINT"].replace("$(HOST_IP)", pods.hosts[0])
    hook = [sys.executable, "-P", "-m", "barco", "pre-stop", "--timeout", "60"]
    done = subprocess.run(
        [*hook, "--kubernetes", "ns/barco-0"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=os.environ
        | environment
        | {"BARCO_ENDPOINT": endpoint, "KUBECONFIG": str(pods.server.kubeconfig)},
    )
    assert done.returncode == 0, done.stderr
    with pods.admin(1) as admin:
        assert [each["name"] for each in admin.users()] == ["admin"]
        admin.create_topic("t")
    assert json.loads((pods.volume(2, "/var/lib/barco") / "data" / "broker.json").read_text())
    pods.kill(0)
    pods.start(0)
    deadline = time.monotonic() + 90
    while pods.status(0).get("status") != "ready":
        assert time.monotonic() < deadline
        time.sleep(0.1)
