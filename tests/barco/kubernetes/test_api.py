"""One StatefulSet, by the real client over HTTP."""

import importlib
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from barco.errors import ConfigError, NotReadyError
from barco.kubernetes import api
from barco.kubernetes.api import Api
from barco.kubernetes.pods import Pod, StatefulSet

sys.path.insert(0, str(Path(__file__).parent))
from apiserver import ApiServer

POD = Pod(namespace="ns", owner="barco", ordinal=1)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    with ApiServer(tmp_path) as made:
        # What the client knows of its environment it reads when it is imported.
        config = importlib.import_module("kubernetes.config.kube_config")
        monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(made.kubeconfig))
        yield made


def test_it_is_read(server: ApiServer) -> None:
    assert Api(POD).read() == StatefulSet(replicas=3, service="peers")
    assert not server.wrong


@pytest.mark.parametrize(("status", "error"), [(403, ConfigError), (503, NotReadyError)])
def test_a_refusal(server: ApiServer, status: int, error: type[Exception]) -> None:
    server.status = status
    with pytest.raises(error, match=rf"StatefulSet ns/barco: {status}"):
        Api(POD).read()


def test_another_name_and_nobody_there(server: ApiServer) -> None:
    with pytest.raises(ConfigError, match="ns/other: 404"):
        Api(Pod(namespace="ns", owner="other", ordinal=1)).read()
    found = Api(POD)
    server.http.server_close()
    with pytest.raises(NotReadyError, match="does not answer"):
        found.read()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"replicas": 2}, "at least 3 brokers"),
        ({"replicas": None}, "spec.replicas = 1"),
        ({"ordinals": {"start": 1}}, "counted from 0"),
    ],
)
def test_one_whose_pods_are_no_brokers(
    server: ApiServer, spec: dict[str, object], words: str
) -> None:
    server.change(**spec)
    with pytest.raises(ConfigError, match=words):
        Api(POD).read()


def test_it_is_watched_whatever_happens_to_the_server(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "BACKOFF_SECONDS_MAX", 0.1)
    heard: queue.Queue[StatefulSet] = queue.Queue()
    threading.Thread(target=Api(POD).follow, args=(heard.put,), daemon=True).start()

    def replicas() -> int:
        return heard.get(timeout=30).replicas

    assert replicas() == 3
    server.change(replicas=4)
    assert replicas() == 4
    server.status = 500
    server.cut()
    count = len(server.asked)
    while len(server.asked) < count + 3:  # It asks again and again.
        time.sleep(0.01)
    server.spec["replicas"] = 6  # Nobody was told.
    server.status = 0
    assert replicas() == 6
    server.change(replicas=2)  # It says so, and goes on.
    server.change(replicas=7)
    assert replicas() == 7
    assert not server.wrong


def test_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ConfigError, match=r"pip install 'barco\[kubernetes\]'"):
        Api(POD)


def test_outside_of_a_pod(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = importlib.import_module("kubernetes.config.kube_config")
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="this is no pod with a service account"):
        Api(POD)
