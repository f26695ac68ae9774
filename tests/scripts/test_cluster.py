"""The files and process ids of `make cluster`."""

import importlib.util
import os
import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest

from barco import config

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "cluster.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("barco_cluster_script", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["barco_cluster_script"] = module  # Dataclasses look themselves up.
    spec.loader.exec_module(module)
    return module


def test_the_files_are_three_brokers_of_one_cluster(script: ModuleType, tmp_path: Path) -> None:
    cluster = script.LocalCluster(tmp_path)
    cluster.write()
    loaded = [config.resolved(config.load(cluster.config(n), {})) for n in range(3)]
    assert [each.broker.bind for each in loaded] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert len({config.cluster_uuid(each) for each in loaded}) == 1
    assert len({each.broker.data_dir for each in loaded}) == 3
    for each in loaded:
        config.check_cluster_ports(each, 3 * each.broker.workers)
    text = cluster.config(1).read_text()
    cluster.write()
    assert cluster.config(1).read_text() == text, "the next start is of the same cluster"


def test_a_process_id_of_somebody_else_is_not_ours(script: ModuleType, tmp_path: Path) -> None:
    cluster = script.LocalCluster(tmp_path)
    cluster.write()
    (tmp_path / "b0.pid").write_text(f"{os.getpid()}\n")
    assert cluster.pid(0) is None and cluster.pid(1) is None
    assert cluster.stop() == []


def test_ports_of_somebody_else_are_told_before_a_broker_starts(
    script: ModuleType, tmp_path: Path
) -> None:
    cluster = script.LocalCluster(tmp_path, hosts=("127.94.3.1", "127.94.3.2", "127.94.3.3"))
    cluster.check_free()
    port = int(cluster.endpoints[1].rpartition(":")[2])
    told = pytest.raises(script.ClusterError, match=r"127\.94\.3\.2:.*make demo-stop")
    with socket.create_server(("127.94.3.2", port)), told:
        script.start(cluster)
    assert not list(tmp_path.iterdir()), "nothing was made, nothing was started"
