"""Who a pod is, and where the others are."""

import pytest

from barco.config import Config
from barco.errors import ConfigError, NotReadyError
from barco.kubernetes.pods import Pod, address_of, addresses, placed, pod_of

HOSTS = {f"barco-{each}.peers.ns.svc": f"10.0.0.{each + 1}" for each in range(6)}


def test_the_ordinal_is_in_the_name() -> None:
    assert pod_of("ns/barco-3") == Pod(namespace="ns", owner="barco", ordinal=3)
    assert pod_of("ns", "a-b-12.peers.ns.svc") == Pod(namespace="ns", owner="a-b", ordinal=12)


@pytest.mark.parametrize(
    "text",
    ["ns/barco", "ns/barco-", "ns/barco-01", "ns/-1", "/barco-1", "", "n s/barco-1", "a/b/c-1"],
)
def test_what_is_no_pod_of_a_statefulset(text: str) -> None:
    with pytest.raises(ConfigError, match="pass NAMESPACE/POD"):
        pod_of(text, "node")


def test_the_first_three_list_each_other_and_later_ones_all_up_to_themselves() -> None:
    def found(ordinal: int) -> int:
        pod = Pod(namespace="ns", owner="barco", ordinal=ordinal)
        return len(addresses(pod, "peers", HOSTS.get, ()))

    assert [found(ordinal) for ordinal in range(6)] == [3, 3, 3, 4, 5, 6]


def test_a_pod_without_an_address_is_where_it_was() -> None:
    pod = Pod(namespace="ns", owner="barco", ordinal=1)
    some = {name: host for name, host in HOSTS.items() if not name.startswith("barco-2")}
    with pytest.raises(NotReadyError, match=r"barco-2\.peers\.ns\.svc has no address yet"):
        addresses(pod, "peers", some.get, ("10.0.0.1", "10.0.0.2"))
    assert addresses(pod, "peers", some.get, ("1.1.1.1", "1.1.1.2", "1.1.1.3")) == (
        "10.0.0.1",
        "10.0.0.2",
        "1.1.1.3",
    )
    with pytest.raises(NotReadyError, match=r"barco-1\.peers"):  # Its own it has to know.
        addresses(pod, "peers", {}.get, ("1.1.1.1", "1.1.1.2", "1.1.1.3"))


def test_the_configuration_follows() -> None:
    pod = Pod(namespace="ns", owner="barco", ordinal=1)
    config = placed(Config(), pod, tuple(HOSTS.values())[:3])
    assert (config.broker.ordinal, config.cluster.uuid) == (1, pod.uuid)
    assert config.cluster.brokers == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert pod.uuid == Pod(namespace="ns", owner="barco", ordinal=4).uuid
    assert pod.uuid != Pod(namespace="other", owner="barco", ordinal=1).uuid
    named = Config().override("cluster", uuid="a" * 32)
    assert placed(named, pod, ("10.0.0.1",)).cluster.uuid == "a" * 32
    for wrong in (
        Config().override("cluster", brokers=tuple(HOSTS.values())[:3]),
        Config().override("broker", ordinal=2),
    ):
        with pytest.raises(ConfigError, match="follow from the StatefulSet"):
            placed(wrong, pod, ("10.0.0.1",))


def test_dns() -> None:
    assert address_of("localhost") == "127.0.0.1"
    assert address_of("no-such-pod.peers.invalid") is None
