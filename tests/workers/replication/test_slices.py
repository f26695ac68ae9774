"""A range is split: its process goes on with a part of its slices, leading or following, and a
start finds them in the log that is there."""

import asyncio
import os
import struct
import tempfile
from pathlib import Path
from typing import Any

from following import (
    GENESIS,
    GID,
    SEGMENT_BYTES,
    SESSION,
    A,
    B,
    C,
    Follower,
    follow,
    make_reactor,
)
from leading import lead, sent_group

from barco._native import Reactor, state_cut
from barco.limits import GROUP_HEADER_BYTES
from barco.model.generation import (
    Generation,
    Gid,
    GroupHead,
    Identity,
    Kind,
    Parent,
    Successor,
)
from barco.model.placement import Placement
from barco.model.ranges import slices_between, token_of_slice
from barco.protocol import replication as r
from barco.protocol.append_frame import Append
from barco.types import Epoch, Ordinal, Token
from barco.workers.storage.files import layout
from barco.workers.storage.index.scan import GEN_START, parse_header

GROUPS = 12
OWN = range(2)
MIDDLE = token_of_slice(Placement(1, 4), 2)
CHILD = Gid(GID.token, Epoch(3))
D = Identity(Ordinal(3), bytes([4]) * 16)


def split(leader: Identity, session: int) -> Successor:
    """Slices 0 and 1 stay with A, B and C; 2 and 3 go where B is no member."""
    parents = (Parent(GID, GROUPS),)
    left = Generation(CHILD, MIDDLE, leader, session, (A, B, C), parents)
    gid = Gid(Token(MIDDLE), CHILD.epoch)
    right = Generation(gid, GENESIS.end, C, 55, (C, D, A), parents)
    return Successor(GROUPS, Kind.SPLIT, (left, right))


async def fill(b: Follower) -> None:
    """All groups of the parent, committed."""
    for head, data in lead(GROUPS, 300):
        await b.send(A, Append(GID, SESSION, head, head.gseq - 1), data)
    await b.rest()
    assert b.reactor.log_state()["stable_gseq"] == GROUPS and not b.fatal


async def told(b: Follower, value: Successor) -> None:
    for member in (A, C):
        await b.send(member, r.Decided(GID, value, SESSION))


async def until(b: Follower, what: Any) -> None:
    for _ in range(3000):
        if what():
            return
        b.listen()
        await asyncio.sleep(0.002)
    raise AssertionError((b.fatal, b.reactor.log_state(), b.driver.status()))


def rows(state: bytes) -> tuple[bytes, bytes]:
    """Without what the log's clock says."""
    magic_to_prefix, clock = 28, struct.Struct("<I").size
    return state[:magic_to_prefix], state[magic_to_prefix + clock :]


def first_body(b: Follower) -> bytes:
    """Of the child's GEN_START."""
    group = layout.segment_path(b.store._shard, CHILD.epoch, 0).read_bytes()
    header = parse_header(group)
    assert header is not None and header.flags & GEN_START
    return group[GROUP_HEADER_BYTES:][: header.body_bytes]


class Leader:
    """A's core with the child's slices, or with others."""

    def __init__(self, directory: str, state: bytes, slices: range) -> None:
        self.reactor = reactor = make_reactor()
        reactor.restore(state)
        reactor.begin_generation(CHILD.epoch, SESSION)
        reactor.set_slices(slices.start, slices[-1])
        fd = os.open(f"{directory}/{len(slices)}", os.O_RDWR | os.O_CREAT)
        os.truncate(fd, SEGMENT_BYTES)
        reactor.add_segment(0, fd, SEGMENT_BYTES)
        reactor.open_generation(b"")

    def groups(self) -> list[tuple[GroupHead, bytes]]:
        found = []
        while not found or not self.reactor.log_state()["settled"]:
            for upcall in self.reactor.run(0.001)[1]:
                if upcall[0] == "built":
                    _, gseq, prev_crc, header_crc, pos, length = upcall
                    data = sent_group(self.reactor, pos, length)
                    found.append((GroupHead(gseq, prev_crc, header_crc, length), data))
            self.reactor.replicated(self.reactor.log_state()["stable_gseq"])
        return found


def streams(reactor: Reactor) -> list[Any]:
    return sorted((name, index, end) for name, index, _, end, _ in reactor.streams())


def test_the_leader_of_the_first_child(tmp_path: Path) -> None:
    async def test(b: Follower) -> None:
        await fill(b)
        assert {index for _, index, _ in streams(b.reactor)} == {0, 1, 2, 3}
        await told(b, split(B, 9))
        await until(b, lambda: b.reactor.log_state()["stable_gseq"] == 1 and b.driver.leading)
        assert b.driver.logs.current == CHILD and not b.fatal
        assert b.reactor.shard_slices() == (0, 2) and b.slices == [range(4), OWN]
        assert {index for _, index, _ in streams(b.reactor)} == {0, 1}
        # What it opens with is what others are told of these slices.
        known = await b.store.state_at(GID.epoch, GROUPS, OWN)
        assert rows(state_cut(first_body(b), 0, 2)) == rows(known.state)
        b.reactor.append(7, "topic-1", 1, b"key", b"of its own")
        for index in (2, 3):
            try:
                b.reactor.append(8, "topic-0", index, b"key", b"of another")
            except ValueError:
                continue
            raise AssertionError("it was taken")

    follow(tmp_path, native=True, test=test)


def test_a_follower_of_the_first_child(tmp_path: Path) -> None:
    async def test(b: Follower) -> None:
        await fill(b)
        state = (await beside(b)).state
        await told(b, split(A, SESSION))
        await until(b, lambda: b.driver.logs.current == CHILD)
        assert b.reactor.shard_slices() == (0, 2) and b.slices == [range(4), OWN]
        with tempfile.TemporaryDirectory(dir=tmp_path) as directory:
            leader = Leader(directory, state, OWN)
            leader.reactor.append(1, "topic-1", 1, b"key", b"in a slice that stayed")
            for head, data in leader.groups():
                await b.send(A, Append(CHILD, SESSION, head, head.gseq - 1), data)
            await b.rest()
            assert b.reactor.log_state()["stable_gseq"] > 1 and not b.fatal
            assert streams(b.reactor) == streams(leader.reactor)
            leader.reactor.close()

    follow(tmp_path, native=True, test=test)


def test_a_leader_that_goes_on_with_all_of_them_is_not_followed(tmp_path: Path) -> None:
    async def test(b: Follower) -> None:
        await fill(b)
        state = (await beside(b, range(4))).state
        await told(b, split(A, SESSION))
        await until(b, lambda: b.driver.logs.current == CHILD)
        with tempfile.TemporaryDirectory(dir=tmp_path) as directory:
            leader = Leader(directory, state, range(4))
            for head, data in leader.groups():
                await b.send(A, Append(CHILD, SESSION, head, head.gseq - 1), data)
            await b.rest()
            assert b.reactor.log_state()["gseq"] == 0
            leader.reactor.close()

    follow(tmp_path, native=True, test=test)


async def beside(b: Follower, slices: range = OWN) -> Any:
    """The parent's state in these slices, from its files."""
    await b.store.seal(GID.epoch, GROUPS)
    return await b.store.state_at(GID.epoch, GROUPS, slices)


def test_a_start_has_the_slices_of_its_log(tmp_path: Path) -> None:
    async def test(b: Follower) -> None:
        await fill(b)
        await told(b, split(B, 9))
        await until(b, lambda: b.reactor.log_state()["stable_gseq"] == 1 and b.driver.leading)
        again = make_reactor()
        await b.driver.close()
        store = type(b.store)(
            b.store._shard,
            b.store._bulk,
            cluster_uuid=b.store._cluster_uuid,
            token=GID.token,
            segment_bytes=SEGMENT_BYTES,
            policy=b.store._policy,
            on_error=b._told,
        )
        await store.recover(again)
        assert store.epoch == CHILD.epoch and again.shard_slices() == (0, 2)
        assert streams(again) == streams(b.reactor)
        await store.close()
        again.close()

    follow(tmp_path, native=True, test=test)


def test_tokens_that_are_no_slices() -> None:
    cut = Placement(3, 8)
    for first, stop in ((0, 8), (3, 5), (8, 9), (17, 24)):
        end = token_of_slice(cut, stop) if stop < 24 else 2**63
        found = slices_between(cut, token_of_slice(cut, first), end)
        assert found == range(first % 8, first % 8 + stop - first)
    for first, stop in ((7, 9), (0, 24), (5, 5), (5, 3)):
        token, end = token_of_slice(cut, first), token_of_slice(cut, stop) if stop < 24 else 2**63
        for tokens in ((token, end), (token + 1, 2**63), (token, end + 1)):
            try:
                slices_between(cut, *tokens)
            except ValueError:
                continue
            raise AssertionError(tokens)
