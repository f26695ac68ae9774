"""What workers are told of the cluster: each frame is one that they take."""

from msgspec.structs import replace

from barco.cluster.gossip.facts import ALIVE, DOWN, BrokerInfo
from barco.cluster.gossip.topology import ENTRIES_MAX, Topology
from barco.limits import PROCESSES_MAX
from barco.protocol import frame


def test_brokers_with_all_processes_that_they_may_have_fit_into_frames() -> None:
    topology, last = Topology(), 2**64 - 1
    processes = tuple((number, number - 2**63, last) for number in range(PROCESSES_MAX))
    for ordinal in range(ENTRIES_MAX + 1):
        info = BrokerInfo(
            ordinal=ordinal, disk_uuid="a" * 32, session=last, address="h" * 253, ports=(),
            workers=128, version="0", host="127.0.0.1", processes=processes,
        )  # fmt: skip
        topology.apply(info.fact())
    first, second = topology.frames(0)
    assert frame.encode(first) and len(second["brokers"]) == 1


def test_ranks_are_given_once_all_brokers_can_read_of_them_those_that_are_down_too() -> None:
    topology = Topology()
    earlier = BrokerInfo(
        ordinal=1, disk_uuid="a" * 32, session=1, address="h", ports=(), workers=1, version="0",
        ranked=False, state=DOWN,
    )  # fmt: skip
    topology.apply(replace(earlier, ordinal=0, ranked=True, state=ALIVE).fact())
    assert topology.ranks()
    topology.apply(earlier.fact())
    assert not topology.ranks()
    topology.apply(replace(earlier, ranked=True, incarnation=1).fact())
    assert topology.ranks()
