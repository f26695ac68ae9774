"""Brokers that are pods of a StatefulSet, with a small API server and a file for the DNS."""

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joining import JoinedCluster, until
from test_target import ordinals_of, target, told, topology

sys.path.insert(0, str(Path(__file__).parents[1] / "barco" / "kubernetes"))
from apiserver import ApiServer


class Pods(JoinedCluster):
    """A StatefulSet whose pods a test starts, as a kubelet would."""

    server: ApiServer

    def create(self, server: ApiServer) -> None:
        """Files that say nothing of who is where."""
        self.server = server
        self.write()
        for ordinal in range(len(self.hosts)):
            told = ("ordinal = ", "brokers = ", "uuid = ")
            lines = self.config(ordinal).read_text().splitlines()
            kept = [line for line in lines if not line.startswith(told)]
            self.config(ordinal).write_text("\n".join(kept) + "\n")

    def schedule(self, *ordinals: int) -> None:
        """These have addresses, and no others."""
        names = {f"barco-{each}.peers.ns.svc": self.hosts[each] for each in ordinals}
        new = self.root / "names.new"
        new.write_text(json.dumps(names))
        new.rename(self.root / "names")

    def said(self, ordinal: int, words: str) -> list[str]:
        """Lines of its log with these words in them."""
        lines = self.log(ordinal).read_text().splitlines()
        return [line for line in lines if words in line]


pytestmark = pytest.mark.chaos  # A minute of brokers that start; what decides is tested by itself.


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    root = tmp_path_factory.mktemp("pods")
    program, python = Path(__file__).with_name("pods.py"), root / "python"
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(4))
    with ApiServer(root) as server:
        environment = f"KUBECONFIG={server.kubeconfig} PODS_NAMES={root}/names"
        python.write_text(
            f'#!/bin/sh\nshift 3\nexec env {environment} {sys.executable} -P {program} "$@"\n'
        )
        python.chmod(0o700)
        made = Pods(root, hosts=hosts, tied=True, python=str(python))
        made.create(server)
        try:
            yield made
        finally:
            for ordinal in range(4):
                made.kill(ordinal)
            made.stop()


def test_the_first_three_wait_for_one_another_and_are_a_cluster(pods: Pods) -> None:
    pods.schedule(0, 1)
    for ordinal in range(3):
        pods.start(ordinal)
    until("0 waits", lambda: pods.said(0, "waits: barco-2.peers.ns.svc has no address yet"))
    pods.schedule(0, 1, 2)
    pods.wait_ready([0, 1, 2])
    assert [each["name"] for each in topology(pods, 0)["brokers"]] == list(pods.hosts[:3])
    assert target(pods, 1)["version"] == 0
    assert not pods.server.wrong


def test_replicas_become_the_target_once(pods: Pods) -> None:
    until("all watch", lambda: len(pods.server.watches) == 3)
    pods.server.change(replicas=4)
    for at in range(3):
        until("it is said", lambda at=at: pods.said(at, "spec.replicas = 4: the target"))
        until("it is told", lambda at=at: target(pods, at)["version"] == 1)
    assert ordinals_of(target(pods, 1)) == [0, 1, 2, 3]


def test_the_new_pod_joins_by_itself_and_gets_its_share(pods: Pods) -> None:
    pods.schedule(0, 1, 2, 3)
    pods.start(3)

    def led() -> Any:
        return [each for each in topology(pods, 1)["routes"] if each["leader"] == 3]

    until("broker 3 leads", led)
    assert pods.said(3, "data directory formatted, to join")
    assert target(pods, 1)["version"] == 1


def pre_stop(pods: Pods, ordinal: int, seconds: int) -> subprocess.CompletedProcess[str]:
    """As the hook runs it."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "barco", "pre-stop", "--timeout", str(seconds)]
        + ["--endpoint", pods.endpoints[ordinal], "--kubernetes", f"ns/barco-{ordinal}"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=os.environ | {"KUBECONFIG": str(pods.server.kubeconfig)},
    )


def test_a_pod_starts_while_another_one_has_no_address(pods: Pods) -> None:
    """And who is about to be stopped waits until its copies are there again."""
    pods.kill(1)
    done = pre_stop(pods, 2, 0)
    assert done.returncode == 1 and "not in sync within 0 s: " in done.stderr
    pods.schedule(0, 1, 3)
    pods.start(1)
    pods.wait_ready([1])
    assert (pods.data(1) / "addresses").exists()
    done = pre_stop(pods, 2, 90)
    assert done.returncode == 0, done.stderr


def test_a_pod_that_is_to_go_for_good_is_told(pods: Pods) -> None:
    pods.server.spec["replicas"] = 3  # Watches are not told.
    done = pre_stop(pods, 3, 90)
    assert done.returncode == 1 and "leaves broker 3 out, and the cluster still" in done.stderr
    pods.server.spec["replicas"] = 4


def test_fewer_replicas_are_told_and_take_nobody_out(pods: Pods) -> None:
    until("1 watches again", lambda: len(pods.said(1, "spec.replicas = 4: the target")) == 2)
    pods.server.change(replicas=3)
    for at in range(4):
        until("it is said", lambda at=at: pods.said(at, "spec.replicas says 3 brokers, and 4"))
    assert target(pods, 0)["version"] == 1
    pods.server.change(replicas=4)
    until(
        "again", lambda: pods.said(0, "spec.replicas = 4: the target, version 1, of 4 brokers, has")
    )


def test_a_pod_reads_its_file_again(pods: Pods) -> None:
    pid = pods.pid(0)
    assert pid is not None
    with pods.config(0).open("a") as file:
        file.write("[topics]\nretention_hours = 5\n")
    os.kill(pid, signal.SIGHUP)
    until("it is read", lambda: pods.said(0, "only the next start takes up topics.retention_hours"))
    told(pods, 1)
