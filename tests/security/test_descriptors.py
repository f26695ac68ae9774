"""A broker with few descriptors: who asks for nothing makes room, and nobody waits in vain."""

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from attacked import AttackedBroker, MiB
from wire import Closed, Response, Wire, head, produce

FILES = 256
CROWD = 1500


@pytest.fixture(scope="module")
def attacked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AttackedBroker]:
    """A broker that may open few files, with small segments; conftest says of which engines."""
    broker = AttackedBroker(
        tmp_path_factory.mktemp("few") / "data",
        engine=request.param,
        files=FILES,
        storage_segment_bytes=16 * MiB,
    )
    broker.begin()
    yield broker
    broker.end()


@pytest.fixture(autouse=True)
def _files() -> Iterator[None]:
    mine = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(mine[1], 8192), mine[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, mine)


def figure(attacked: AttackedBroker, name: str) -> int:
    """Of /metrics, over all workers."""
    for line in attacked.request("GET", "/metrics", listener="metrics").body.splitlines():
        if line.startswith(b"barco_%s " % name.encode()):
            return int(float(line.split()[1]))
    raise AssertionError(name)


def told(attacked: AttackedBroker) -> int:
    return attacked.log_path.read_text().count("too many connections")


def test_the_start_says_what_the_limit_leaves(attacked: AttackedBroker) -> None:
    log = attacked.log_path.read_text()
    assert log.count(f"limit on open files ({FILES}) leaves a worker") == 1


def test_who_is_idle_makes_room_for_who_asks(attacked: AttackedBroker) -> None:
    """Two honest connections from before are kept, new ones are served, segments roll over."""
    sealed = figure(attacked, "storage_sealed_segments")
    with ExitStack() as stack:
        early = [stack.enter_context(attacked.shard_wire(shard)) for shard in (0, 1)]

        def go_on() -> None:
            for wire in early:
                wire.send(produce("t", b"early"))
                assert wire.response().status == 200

        for number in range(CROWD):
            stack.enter_context(attacked.wire())
            if number % 50 == 0:
                go_on()
        time.sleep(0.1)  # Who has just come may be about to ask.
        for _ in range(30):
            assert attacked.exchange(produce("t", b"late"), timeout=10).status == 200
            go_on()
        for number in range(80):
            event = os.urandom(MiB - 4096)
            answer = attacked.exchange(produce("bulk", event, f"slice={number % 8}"), timeout=30)
            assert answer.status == 200
            go_on()
        for pid in attacked.pids:
            assert len(os.listdir(f"/proc/{pid}/fd")) < FILES
    assert figure(attacked, "storage_sealed_segments") >= sealed + 2
    assert figure(attacked, "connections_idle_closed_total") >= CROWD - 2 * FILES
    until = time.monotonic() + 20
    while not told(attacked) and time.monotonic() < until:
        time.sleep(0.1)
    assert told(attacked) == 1


def long_poll(attacked: AttackedBroker) -> bytes:
    described = attacked.request("GET", "/v1/topic/t/slices").json["slices"][0]
    target = f"/v1/topic/t/slices/{described['token']}/{described['index']}/events"
    return head("GET", f"{target}?from=latest&waitMs=60000")


def refused(answer: Response) -> bool:
    if answer.status != 503:
        assert answer.status == 200
        return False
    assert b"too-many-connections" in answer.body and answer.closes
    assert answer.headers["barco-outcome"] == "not-written"
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) > 0
    return True


def test_where_all_are_busy_a_new_one_is_told_so(attacked: AttackedBroker) -> None:
    attacked.produce("t", b"x", key="7")
    poll = long_poll(attacked)
    with ExitStack() as stack:
        early = [stack.enter_context(attacked.shard_wire(shard)) for shard in (0, 1)]
        for shard in (0, 1):
            for number in range(FILES):
                wire = stack.enter_context(Wire.to(attacked.port(shard=shard)))
                wire.send(poll)
                if number % 16 == 0:
                    early[shard].send(produce("t", b"early"))
                    assert early[shard].response().status == 200
        for shard in (0, 1):
            for _ in range(20):
                with Wire.to(attacked.port(shard=shard), timeout=10) as wire:
                    wire.send(produce("t", b"late"))
                    assert refused(wire.response())
            early[shard].send(produce("t", b"early"))
            assert early[shard].response().status == 200
    assert attacked.exchange(produce("t", b"again"), timeout=60).status == 200
    assert figure(attacked, "connections_refused_total") >= 40
    assert told(attacked) <= 2, "once a minute"


def test_without_any_descriptor_there_is_the_reserve(attacked: AttackedBroker) -> None:
    """As when files have taken all there were: the limit is now below what is open."""
    attacked.produce("t", b"x")
    busy = long_poll(attacked)
    with ExitStack() as stack:
        polls = [stack.enter_context(attacked.shard_wire(0)) for _ in range(20)]
        for wire in polls:
            wire.send(busy)
        with attacked.shard_wire(0) as wire:
            wire.send(head("GET", "/status"))
            assert wire.response().status == 200, "by then the polls have begun"
        pid = attacked.pids[0]
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        free = min(set(range(FILES)) - used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            time.sleep(0.7)  # The worker looks twice a second; an accept under way looks later.
            for _ in range(5):
                with attacked.shard_wire(0, timeout=60) as wire:
                    wire.send(produce("t", b"late"))
                    assert refused(wire.response())
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    deadline, times = time.monotonic() + 60, 0
    while times < 10:  # Now and then it looks; until it does, who leaves makes room for one.
        times = times + 1 if is_let_in(attacked, 0) else 0
        assert time.monotonic() < deadline
        time.sleep(0.1)


def is_let_in(attacked: AttackedBroker, shard: int) -> bool:
    with attacked.shard_wire(shard, timeout=60) as wire:
        wire.send(produce("t", b"again"))
        return not refused(wire.response())


SWARM = "127.0.0.2"


def from_address(attacked: AttackedBroker, address: str, shard: int) -> Wire:
    sock = socket.socket()
    sock.settimeout(30)
    sock.bind((address, 0))
    sock.connect(("127.0.0.1", attacked.port(shard=shard)))
    return Wire(sock)


def test_a_swarm_makes_room_and_takes_none(attacked: AttackedBroker) -> None:
    """From one address so many that there is no place left, each asks now and then and is never
    silent for long. Who comes from elsewhere is let in, and whose connection was idle keeps it."""
    attacked.produce("t", b"x")
    ask = head("GET", "/ready")
    with ExitStack() as stack:
        idle = stack.enter_context(attacked.shard_wire(0))
        idle.send(produce("t", b"early"))
        assert idle.response().status == 200

        def join() -> Wire:
            return stack.enter_context(from_address(attacked, SWARM, 0))

        swarm = [join() for _ in range(FILES)]
        for turn in range(20):
            for wire in swarm:
                wire.send(ask)
            for number, wire in enumerate(swarm):
                try:
                    wire.response()
                except (Closed, OSError):
                    wire.sock.close()
                    swarm[number] = join()
            if turn < 5:
                continue  # The idle one is that for longer than anybody else.
            # Who has just come makes no room: the worker has seen all of them, and some time ago.
            with suppress(Closed, OSError), from_address(attacked, SWARM, 0) as last:
                last.send(ask)
                last.response()
            time.sleep(0.05)
            with attacked.shard_wire(0, timeout=10) as wire:
                wire.send(produce("t", b"late"))
                assert wire.response().status == 200
        assert figure(attacked, "connections_refused_total") > 0
        idle.send(produce("t", b"idle"))
        assert idle.response().status == 200
