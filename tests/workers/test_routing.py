"""Produces on their way through a ring: cores of three brokers, on sockets, without workers."""

import itertools
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barco import _native, limits
from barco.limits import PROCESSES_MAX
from barco.model.placement import Placement
from barco.model.ranges import peer_of
from barco.model.replicas import Replicas
from barco.types import Ordinal, Token

RING = Replicas(Placement(3, 8), 1)
SEGMENT_BYTES = 1 << 20


class Core:
    """One process of a broker: its reactor, and a client of it."""

    def __init__(
        self, root: Path, ordinal: int, number: int = 0, *, auto_create: bool = True
    ) -> None:
        process = (Ordinal(ordinal), number)
        self.root = root
        self.peer = peer_of(process)
        self.shard = RING.shard_of(process)
        slices = RING.slices_of(self.shard)
        self.reactor = _native.Reactor(
            engine="epoll",
            arena_bytes=8 << 20,
            request_bytes_max=1 << 18,
            event_bytes_max=1 << 16,
            body_memory_max=8 << 20,
            auto_create=auto_create,
            worker=self.shard % RING.workers,
            workers=RING.workers,
            ring_size=3,
            range_index=self.shard // RING.workers,
            peer=self.peer,
            peers=3 * PROCESSES_MAX,
            slices=8,
            slice_first=slices.start,
            slice_last=slices.stop - 1,
            cluster_uuid=b"c" * 16,
            epoch=2,
        )
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self.reactor.listen(listener.fileno(), 0)
        self.listener = listener
        self.upcalls: list[tuple] = []

    def open(self) -> None:
        """Lead, alone: a generation with a segment to write to."""
        path = self.root / f"{self.peer}.log"
        path.write_bytes(bytes(SEGMENT_BYTES))
        self.reactor.add_segment(0, os.open(path, os.O_RDWR | os.O_DIRECT), SEGMENT_BYTES)
        self.reactor.open_generation(b"")
        self.route(self, self.peer, "here")

    def route(self, owner: "Core", peer: int, endpoint: str = "") -> None:
        """From now on the owner's slices are led by this peer."""
        numbers = RING.numbers_of(owner.shard)
        self.reactor.set_route(numbers.start, len(numbers), peer, endpoint)

    def turn(self) -> None:
        self.upcalls += self.reactor.run(0.002)[1]


class Ring:
    """Cores that take turns."""

    def __init__(self, root: Path, *, auto_create: bool = True) -> None:
        self.cores = [Core(root, ordinal, auto_create=auto_create) for ordinal in range(3)]
        self.clients: list[socket.socket] = []
        for core in self.cores[1:]:
            core.open()

    def connect(self, caller: Core, owner: Core) -> None:
        """A hand-off connection, as links make them."""
        one, other = socket.socketpair()
        for end in (one, other):
            end.setblocking(False)
        caller.reactor.attach_peer(owner.peer, one.detach())
        owner.reactor.adopt_peer(other.detach(), 1)
        caller.route(owner, owner.peer, f"127.0.0.{owner.peer}:9300")

    def produce(
        self, core: Core, target: str, body: bytes = b"{}", headers: str = ""
    ) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", core.port))
        client.setblocking(False)
        self.clients.append(client)
        client.sendall(
            f"POST /v1/topic/t/messages{target} HTTP/1.1\r\nHost: localhost\r\n{headers}"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        return client

    def answer(self, client: socket.socket) -> tuple[int, str, dict]:
        """Status, head and body, while all cores go on."""
        got = b""
        for _ in range(5000):
            for core in self.cores:
                core.turn()
            try:
                got += client.recv(65536)
            except BlockingIOError:
                continue
            head, end, body = got.partition(b"\r\n\r\n")
            if end and len(body) >= int(head.lower().split(b"content-length: ")[1].split()[0]):
                return int(head.split()[1]), head.decode(), json.loads(body)
        raise AssertionError(f"no answer, only {got!r}")

    def until(self, condition: Callable[[], bool]) -> None:
        """All cores go on until it is so."""
        for _ in range(5000):
            if condition():
                return
            for core in self.cores:
                core.turn()
        raise AssertionError("it never was")

    def ask(self, core: Core, target: str, **more) -> tuple[int, str, dict]:
        return self.answer(self.produce(core, target, **more))

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for core in self.cores:
            core.reactor.close()
            core.listener.close()


@pytest.fixture
def ring(tmp_path):
    made = Ring(tmp_path)
    yield made
    made.close()


def key_of(shard: int, start: int = 0) -> str:
    """A key whose slice is in the shard."""
    keys = (f"key-{n}" for n in itertools.count(start))
    return next(k for k in keys if RING.placement.locate(token_of(k))[0] == shard)


def token_of(key: str) -> Token:
    return Token(_native.token(key.encode()))


def test_a_key_reaches_its_leader_in_one_hop(ring):
    taker, owner = ring.cores[0], ring.cores[1]
    ring.connect(taker, owner)
    key = key_of(owner.shard)
    status, _, body = ring.ask(taker, f"?partitionKey={key}")
    index, slice_ = RING.placement.locate(token_of(key))
    assert (status, index) == (200, owner.shard)
    assert (body["token"], body["rangeIndex"]) == (str(RING.placement.token(index)), slice_)
    assert taker.reactor.stats()["handed_out"] == 1
    assert owner.reactor.stats()["handed_in"] == 1
    own = ring.ask(owner, f"?partitionKey={key}")[2]
    assert own["startOffset"] == "1" and own["token"] == body["token"]


def test_the_leader_says_whether_a_topic_exists(tmp_path):
    ring = Ring(tmp_path, auto_create=False)
    try:
        taker, owner = ring.cores[0], ring.cores[1]
        ring.connect(taker, owner)
        target = f"?partitionKey={key_of(owner.shard)}"
        assert ring.ask(taker, target)[0] == ring.ask(owner, target)[0] == 404
        owner.reactor.topic_set("t", True)
        assert ring.ask(taker, target)[0] == ring.ask(owner, target)[0] == 200
    finally:
        ring.close()


def test_nobody_leads(ring):
    status, head, body = ring.ask(ring.cores[1], f"?partitionKey={key_of(2)}")
    assert (status, body["type"]) == (503, "urn:barco:problem:no-leader")
    assert "Barco-Outcome: not-written" in head


def test_a_stale_route_is_not_written_and_not_handed_on(ring):
    """The one that is asked holds the shard, and does not lead it any more."""
    asked, taker, third = ring.cores
    ring.connect(taker, asked)
    asked.route(asked, peer_of((Ordinal(2), 2)), "")
    status, head, _ = ring.ask(taker, f"?partitionKey={key_of(asked.shard)}")
    assert status == 503 and "Barco-Outcome: not-written" in head
    assert asked.reactor.stats()["handed_out"] == 0
    assert third.reactor.stats()["handed_in"] == 0


def test_produces_wait_for_the_next_leader(ring):
    """At who is to lead the slice, then, as another one is, where they came in, and again."""
    taker, old = ring.cores[:2]
    new = Core(old.root, 2, 1)
    assert new.shard == old.shard
    ring.cores.append(new)
    for core in ring.cores:
        core.reactor.park(4000)
    ring.connect(taker, old)
    assert old.reactor.hold(3000), "nothing is under way"
    target = f"?partitionKey={key_of(old.shard)}"
    clients = [ring.produce(taker, target, body=b"%d" % n) for n in range(3)]
    ring.until(lambda: old.reactor.stats()["calls_waiting"] == 3)
    old.reactor.fence()
    old.route(old, new.peer)
    ring.until(lambda: old.reactor.stats()["calls_given_back"] == 6)  # It was asked again.
    ring.connect(taker, new)
    ring.until(lambda: new.reactor.stats()["calls_waiting"] == 3)
    assert taker.reactor.stats()["calls_waiting"] == 0
    new.open()
    answers = [ring.answer(client) for client in clients]
    assert [status for status, _, _ in answers] == [200, 200, 200]
    assert {body["startOffset"] for _, _, body in answers} == {"0", "1", "2"}
    assert old.reactor.stats()["events"] == 0 and new.reactor.stats()["events"] == 3


def test_nobody_leads_for_too_long(ring):
    taker = ring.cores[1]
    taker.reactor.park(200)
    began = time.monotonic()
    status, head, _ = ring.ask(taker, f"?partitionKey={key_of(2)}")
    assert status == 503 and "Barco-Outcome: not-written" in head
    assert time.monotonic() - began >= 0.2
    assert taker.reactor.stats()["calls_given_up"] == 1


def test_a_link_that_breaks_leaves_the_outcome_unknown(ring):
    taker, owner = ring.cores[0], ring.cores[1]
    one, other = socket.socketpair()
    one.setblocking(False)
    taker.reactor.attach_peer(owner.peer, one.detach())
    taker.route(owner, owner.peer, "")
    client = ring.produce(taker, f"?partitionKey={key_of(owner.shard)}")
    other.setblocking(False)
    got = b""
    for _ in range(2000):
        taker.turn()
        try:
            got += other.recv(65536)
            break
        except BlockingIOError:
            continue
    assert got, "the call was sent"
    other.close()
    status, head, _ = ring.answer(client)
    assert status == 500 and "not-written" not in head
    assert ("peer_closed", owner.peer) in taker.upcalls
    status, head, _ = ring.ask(taker, f"?partitionKey={key_of(owner.shard)}")
    assert status == 503 and "Barco-Outcome: not-written" in head


def test_an_old_leader_is_waited_for_only_briefly(ring):
    took = []
    while not took or (min(took) >= 0.4 and len(took) < 20):  # Once the machine was not busy.
        took.append(waited_for_an_old_leader(ring))
    assert min(took) < 0.4, "the next sweep is up to half a second away"


def waited_for_an_old_leader(ring):
    """How many seconds."""
    taker, owner = ring.cores[0], ring.cores[1]
    one, other = socket.socketpair()
    one.setblocking(False)
    taker.reactor.attach_peer(owner.peer, one.detach())
    taker.route(owner, owner.peer, "")
    before = taker.reactor.stats()["handed_out"]
    client = ring.produce(taker, f"?partitionKey={key_of(owner.shard)}")
    while taker.reactor.stats()["handed_out"] == before:
        taker.turn()
    began = time.monotonic()
    taker.route(owner, peer_of((Ordinal(2), 1)), "")
    status, head, _ = ring.answer(client)
    took = time.monotonic() - began
    assert status == 500 and "not-written" not in head
    other.close()
    return took


def test_a_slice_by_token(ring):
    owner = ring.cores[2]
    token = RING.placement.token(2)
    status, _, body = ring.ask(owner, f"?slice=5&token={token}")
    assert status == 200 and (body["token"], body["rangeIndex"]) == (str(token), 5)
    assert ring.ask(owner, "?slice=5")[2]["token"] == str(token)
    for target in (f"?slice=5&token={token + 1}", "?slice=8", "?slice=1&token=x"):
        assert ring.ask(owner, target)[0] == 400


def test_events_without_a_key_stay_where_they_came_in_or_go_to_whoever_leads(ring):
    follower, leader = ring.cores[0], ring.cores[1]
    assert ring.ask(leader, "")[2]["token"] == str(RING.placement.token(1))
    ring.connect(follower, leader)
    status, _, body = ring.ask(follower, "")
    assert status == 200 and body["token"] == str(RING.placement.token(1))


def test_a_batch_is_cut_by_the_ring(ring):
    taker, owner = ring.cores[1], ring.cores[2]
    ring.connect(taker, owner)
    keys = [key_of(1), key_of(2), key_of(2, 50), key_of(1, 50)]
    batch = _native.batch_encode([b"a", b"b", b"c", b"d"], [key.encode() for key in keys])
    kind = "Content-Type: application/vnd.barco.batch\r\n"
    status, _, body = ring.ask(taker, "", body=batch, headers=kind)
    assert status == 200 and body["count"] == 4
    places = {RING.placement.locate(token_of(key)) for key in keys}
    told = {(each["token"], each["rangeIndex"]) for each in body["slices"]}
    assert told == {(str(RING.placement.token(index)), number) for index, number in places}
    refused = ring.ask(taker, "", body=batch, headers=kind + "Barco-No-Forward: 1\r\n")
    assert refused[0] == 421 and refused[2]["owner"] == f"127.0.0.{owner.peer}:9300"


@pytest.mark.parametrize("garbage", [b"\0" * 64, b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n"])
def test_a_peer_that_speaks_something_else_is_closed(ring, garbage):
    owner = ring.cores[1]
    one, other = socket.socketpair()
    one.setblocking(False)
    owner.reactor.adopt_peer(one.detach(), 1)
    other.sendall(garbage)
    other.setblocking(False)
    for _ in range(2000):
        owner.turn()
        try:
            assert other.recv(100) == b""
            break
        except BlockingIOError:
            continue
        except ConnectionResetError:
            break
    else:
        raise AssertionError("still open")
    other.close()


def test_a_ring_beyond_the_limit_is_refused() -> None:
    """Its ranges would have no width, and the first token divide by zero."""
    _native.Reactor(engine="epoll", cluster_uuid=bytes(16), ring_size=limits.BROKERS_MAX)
    with pytest.raises(ValueError, match="12288 ranges"):
        _native.Reactor(engine="epoll", cluster_uuid=bytes(16), ring_size=limits.BROKERS_MAX + 1)
