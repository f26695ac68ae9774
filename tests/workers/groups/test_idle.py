"""Group offsets that nobody needs are forgotten; those of a group with members never are."""

from twin import Broker, run

from barco.workers.groups.idle import IDLE_US, expire


async def expire_all(broker: Broker) -> int:
    count = 0
    for service, reactor in zip(broker.services, broker.reactors, strict=True):
        assert service is not None
        count += await expire(service.consumption, service.membership, reactor.clock_us)
    return count


def later(broker: Broker, time_us: int) -> None:
    for reactor in broker.reactors:
        reactor.clock_us += time_us


@run
async def test_positions_expire_without_members() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t")
    await broker.register("d", "t", group="other")
    assert await broker.values("c") == await broker.values("d") == [1]
    assert (await broker.commit("c")).status == (await broker.commit("d")).status == 204
    await broker.goodbye("c")
    later(broker, IDLE_US - 10_000_000)
    assert await expire_all(broker) == 0
    later(broker, 20_000_000)
    assert await expire_all(broker) == 8  # Of all slices, of the group without members.
    await broker.settle()
    await broker.register("c", "t")
    assert await broker.values("c") == [1], "it begins anew"
    assert await broker.values("d") == []


@run
async def test_a_restart_forgets_neither_offsets_nor_their_age() -> None:
    broker = Broker(workers=1)
    broker.produce("t", 0, b"1")
    await broker.register("c", "t")
    assert await broker.values("c") == [1]
    assert (await broker.commit("c")).status == 204
    later(broker, IDLE_US // 2 + 1_000_000)
    assert await expire_all(broker) == 0
    await broker.settle()  # Stored anew, as the group has a member.
    broker.kill(0)
    broker.start(0)
    await broker.goodbye("c")
    later(broker, IDLE_US - 10_000_000)
    assert await expire_all(broker) == 0
    later(broker, 20_000_000)
    assert await expire_all(broker) == 8
