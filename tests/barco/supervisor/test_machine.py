"""What the machine must offer."""

import os
import subprocess
import sys

import pytest

from barco.config import Config
from barco.errors import ConfigError
from barco.supervisor import machine


@pytest.mark.parametrize("release", ["5.10.0-8-amd64", "6.1.0", "6.18.44-fc-v657", "10.0"])
def test_kernels_that_will_do(release: str) -> None:
    assert machine.check_kernel(release) >= (5, 10)


@pytest.mark.parametrize("release", ["4.19.0-26-amd64", "5.9.16", "2.6.32", "unheard of"])
def test_kernels_that_are_too_old(release: str) -> None:
    with pytest.raises(ConfigError, match=r"is too old: barco needs 5.10 or newer \(6.1 for"):
        machine.check_kernel(release)


def test_this_kernel() -> None:
    assert machine.check_kernel() >= (5, 10)


def test_open_addresses_need_a_flag() -> None:
    config = Config()
    assert machine.check_bind(config, False) is False
    open_config = config.override("broker", bind="192.0.2.1")
    assert machine.check_bind(open_config, True) is True
    with pytest.raises(ConfigError, match="access.required .* and tls.certificate .* and write"):
        machine.check_bind(open_config, False)


def test_users_and_tls_close_a_broker() -> None:
    """And a cluster is closed by TLS among its brokers besides."""
    users = Config().override("broker", bind="192.0.2.1").override("access", required=True)
    with pytest.raises(ConfigError, match=r"is tls.certificate \(barco certs.* tokens too"):
        machine.check_bind(users, False)
    sealed = users.override("tls", certificate="a.crt", key="a.key")
    assert machine.check_bind(sealed, False) is False and machine.check_bind(sealed, True) is False
    without = sealed.override("access", required=False)
    with pytest.raises(ConfigError, match="is access.required"):
        machine.check_bind(without, False)
    ring = sealed.override("cluster", brokers=("192.0.2.1", "192.0.2.2", "192.0.2.3"))
    with pytest.raises(ConfigError, match=r"is cluster.ca \(barco certs init, then cluster.ca"):
        machine.check_bind(ring, False)
    assert machine.check_bind(ring, True) is True
    mutual = ring.override("cluster", ca="ca.crt", certificate="a.crt", key="a.key")
    assert machine.check_bind(mutual, False) is False
    lax = mutual.override(
        "cluster", tls_required=False
    )  # On the way to TLS it is as open as before.
    with pytest.raises(ConfigError, match="is cluster.tls_required = true"):
        machine.check_bind(lax, False)
    assert machine.check_bind(lax, True) is True
    with pytest.raises(ConfigError, match="is access.required"):
        machine.check_bind(mutual.override("access", required=False), False)


def test_a_cluster() -> None:
    assert machine.check_cluster(Config()).broker.ordinal == 0
    machine.check_cluster(Config().override("cluster", brokers=("127.0.0.1",)))
    three = Config().override("cluster", brokers=("127.0.0.1", "127.0.0.2", "127.0.0.3"))
    second = machine.check_cluster(three.override("broker", ordinal=1, workers=2))
    assert (second.broker.ordinal, second.broker.bind) == (1, "127.0.0.2")
    with pytest.raises(ConfigError, match="ordinals go to 2"):
        machine.check_cluster(three.override("broker", ordinal=3))
    with pytest.raises(ConfigError, match="'127.0.0.3' for this ordinal, which is where"):
        machine.check_cluster(three.override("broker", ordinal=2, bind="127.0.0.9"))
    near = three.override("broker", ordinal=0, workers=4).override("ports", replication=9290)
    with pytest.raises(ConfigError, match="meet ports.shard"):
        machine.check_cluster(near)
    free = three.override("broker", ordinal=0).override("ports", shard=0)
    with pytest.raises(ConfigError, match="no free choice of ports"):
        machine.check_cluster(free)


def test_worker_count() -> None:
    cores = len(os.sched_getaffinity(0))
    assert machine.worker_count(Config()) == min(cores, 8)
    assert machine.worker_count(Config().override("broker", workers=5)) == 5
    one_slice = Config().override("cluster", slices_per_range=1)
    assert machine.worker_count(one_slice) == 1


def test_a_priority_that_is_refused_says_what_to_do() -> None:
    """In a process of its own without privileges: a priority cannot be taken back."""
    code = (
        "import os\n"
        "from barco.supervisor import machine\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "assert machine.set_priority(0) == ''\n"
        "assert machine.set_priority(19) == ''\n"
        "assert os.getpriority(os.PRIO_PROCESS, 0) == 19\n"
        "print(machine.set_priority(-10))\n"
        "assert os.getpriority(os.PRIO_PROCESS, 0) == 19\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("broker.nice = -10 is refused (Permission denied): run as root")
    with pytest.raises(ConfigError, match="broker.nice = -21: must be from -20 to 19"):
        Config().override("broker", nice=-21)


def placed(count: int, workers: int, brokers: int) -> list[list[int]]:
    """The cores of all processes of each broker on a machine with so many."""
    processes = range(workers * (3 if brokers > 1 else 1))
    return [
        [
            machine.core_of(each, workers=workers, ordinal=ordinal, cores=range(count))
            for each in processes
        ]
        for ordinal in range(brokers)
    ]


@pytest.mark.parametrize("count", range(1, 65))
@pytest.mark.parametrize("workers", (1, 2, 3, 8))
def test_processes_are_spread_over_the_cores(count: int, workers: int) -> None:
    brokers = placed(count, workers, 3)
    for cores in brokers:
        leaders, followers = cores[:workers], cores[workers:]
        assert len(set(leaders)) == min(count, workers), "each leader on a core of its own"
        if count > workers:
            assert not set(leaders) & set(followers), "nobody follows on a leader's core"
        assert len(set(cores)) == min(count, len(cores)), "no core is left out"
        used = [cores.count(core) for core in set(cores)]
        assert count > workers or max(used) - min(used) <= 1
    # On one machine: no two leaders share a core while there are enough for all.
    leading = [core for cores in brokers for core in cores[:workers]]
    assert len(set(leading)) == min(count, 3 * workers) or count < 3 * workers
    if count >= 9 * workers and count % 3 == 0:
        everything = [core for cores in brokers for core in cores]
        assert len(set(everything)) == 9 * workers, "each process a core of its own"
    # What was measured: nine processes, all on core 0.
    if workers == 1 and count in (2, 3):
        everything = [core for cores in brokers for core in cores]
        used = [everything.count(core) for core in range(count)]
        assert max(used) - min(used) <= 1


def test_a_single_broker_begins_at_the_first_core() -> None:
    assert placed(4, 4, 1) == [[0, 1, 2, 3]]
    assert placed(2, 4, 1) == [[0, 1, 0, 1]]
