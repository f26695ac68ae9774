"""States as Python has them: the sum of real groups, in parts, and in a core with other slices."""

import os
import random
import socket
from pathlib import Path

import pytest

from barco._native import Reactor, ShardState, state_cut, state_union
from barco.limits import GROUP_HEADER_BYTES
from barco.workers.storage.index import scan

UUID = b"\x07" * 16
SEGMENT_BYTES = 1 << 16
SLICES = 8


def make_reactor(slices: range) -> Reactor:
    return Reactor(
        arena_bytes=8 << 20,
        request_bytes_max=1 << 20,
        event_bytes_max=1 << 18,
        slices=SLICES,
        slice_first=slices.start,
        slice_last=slices.stop - 1,
        cluster_uuid=UUID,
        session=1,
    )


def sent_group(reactor: Reactor, pos: int, length: int) -> bytes:
    """A group from the core's memory, by the way that it goes to followers."""
    data = b""
    here, there = socket.socketpair()
    with here, there:
        while len(data) < length:
            sent = reactor.send_group(here.fileno(), b"", pos, length, len(data))
            while sent > 0:
                part = there.recv(sent)
                data, sent = data + part, sent - len(part)
    return data


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The groups of a leader of eight slices, over several segments."""
    reactor, rng, found = make_reactor(range(SLICES)), random.Random(5), list[bytes]()
    directory: Path = tmp_path_factory.mktemp("log")
    reactor.begin_generation(2, 70)
    for index in range(40):
        fd = os.open(directory / str(index), os.O_RDWR | os.O_CREAT)
        os.truncate(fd, SEGMENT_BYTES)
        reactor.add_segment(index, fd, SEGMENT_BYTES)
    reactor.open_generation(b"")
    while len(found) < 200:
        index = rng.randrange(SLICES)
        reactor.append(1, f"topic-{rng.randrange(5)}", index, b"key", rng.randbytes(500))
        key = f"group\0topic\0{index}".encode()
        reactor.append(1, "__offsets", index, key, str(len(found)).encode())
        reactor.append(1, "__topics", 0, f"topic-{rng.randrange(5)}".encode(), rng.randbytes(9))
        before = len(found)
        while len(found) == before or not reactor.log_state()["settled"]:
            for upcall in reactor.run(0.001)[1]:
                if upcall[0] == "built":
                    _, _, _, _, pos, length = upcall
                    found.append(sent_group(reactor, pos, length))
            reactor.replicated(reactor.log_state()["stable_gseq"])
    reactor.close()
    return found


def state_of(groups: list[bytes], first: int = 0) -> bytes:
    """The sum of the groups from this one on, which is a snapshot."""
    sum_ = ShardState(0, SLICES)
    for data in groups[first:]:
        header = scan.parse_header(data)
        assert header is not None
        if header.flags & (scan.GEN_START | scan.SNAPSHOT):
            sum_.restore(data[GROUP_HEADER_BYTES:][: header.body_bytes])
        else:
            sum_.apply_group(data)
    return sum_.snapshot()


def test_from_which_snapshot_it_is_made_does_not_matter(groups: list[bytes]) -> None:
    found = [scan.parse_header(data) for data in groups]
    snapshots = [at for at, header in enumerate(found) if header and header.flags & scan.SNAPSHOT]
    assert len(snapshots) > 3, "it went over several segments"
    states = {state_cut(state_of(groups, first), 0, SLICES) for first in (0, *snapshots)}
    assert len(states) == 1


def test_a_core_with_other_slices_goes_on_from_its_part(groups: list[bytes]) -> None:
    whole = make_reactor(range(SLICES))
    whole.restore(state_of(groups))
    for slices in (range(3), range(3, 8), range(5, 6)):
        part = make_reactor(slices)
        part.restore(state_cut(state_of(groups), slices.start, len(slices)))
        streams = sorted(each for each in whole.streams() if each[1] in slices)
        assert streams and sorted(part.streams()) == streams
        offsets = {(k, v) for k, v in whole.compacted("__offsets") if int(k[-1:]) in slices}
        assert len(offsets) == len(slices) and set(part.compacted("__offsets")) == offsets
        assert set(part.compacted("__topics")) == set(whole.compacted("__topics")) != set()
        other = state_cut(state_of(groups), 0, 3)  # A state says of which slices it is.
        part.restore(other)
        assert part.shard_slices() == (0, 3)
        with pytest.raises(ValueError, match="not a snapshot of this shard"):
            part.restore(other[:-1])
        part.close()
    whole.close()


def test_the_parts_are_the_state(groups: list[bytes]) -> None:
    state = state_of(groups)
    whole = state_cut(state, 0, SLICES)
    for border in range(1, SLICES):
        low, high = state_cut(state, 0, border), state_cut(state, border, SLICES - border)
        assert state_union(low, high) == state_union(high, low) == whole


def test_a_snapshot_says_its_slices(groups: list[bytes]) -> None:
    """Who leads other slices by now answers for those that its log had."""
    other = ShardState(6, 2)
    other.restore(state_of(groups))
    assert state_cut(other.snapshot(), 0, SLICES) == state_cut(state_of(groups), 0, SLICES)
    reactor = make_reactor(range(3, 8))
    assert reactor.shard_slices() == (3, 5)
    reactor.close()


def test_what_is_refused_is_refused_in_words(groups: list[bytes]) -> None:
    state = state_of(groups)
    with pytest.raises(ValueError, match="it is no state"):
        state_cut(state[:-1], 0, SLICES)
    with pytest.raises(ValueError, match="other slices"):
        state_cut(state, 4, SLICES)
    with pytest.raises(ValueError, match="no neighbours"):
        state_union(state_cut(state, 0, 2), state_cut(state, 3, 2))
    with pytest.raises(ValueError, match="no number of slices"):
        ShardState(0, 1 << 20)
    with pytest.raises(ValueError, match="not a snapshot"):
        ShardState(0, 4).restore(state[:-1])
    with pytest.raises(ValueError, match="valid chunks"):
        ShardState(0, SLICES).apply_group(b"group")
