"""Placement is PolarStreams' ring: tokens, order, followers, slices and keys as published."""

from itertools import pairwise

import pytest

from barco.model.placement import (
    RING_UNIT,
    Placement,
    ring_order,
    ring_size_valid,
    slices_of_worker,
    worker_of_slice,
)
from barco.model.token import TOKEN_MAX, TOKEN_MIN, token_of
from barco.types import Ordinal, SliceIndex, Token

ORDERS = {
    1: "0",
    3: "0 1 2",
    6: "0 3 1 4 2 5",
    12: "0 6 3 7 1 8 4 9 2 10 5 11",
    24: "0 12 6 13 3 14 7 15 1 16 8 17 4 18 9 19 2 20 10 21 5 22 11 23",
}
TOKENS = {
    3: [-9223372036854775808, -3074457345618259968, 3074457345618255872],
    6: [
        *(-9223372036854775808, -6148914691236517888, -3074457345618259968),
        *(-2048, 3074457345618255872, 6148914691236513792),
    ],
    12: [
        *(-9223372036854775808, -7686143364045646848, -6148914691236517888),
        *(-4611686018427388928, -3074457345618259968, -1537228672809131008),
        *(-2048, 1537228672809126912, 3074457345618255872),
        *(4611686018427384832, 6148914691236513792, 7686143364045642752),
    ],
}
BOUNDS = [  # (ring size, index, starts of 4 slices, the end)
    (3, 0, [-9223372036854775808, -7686143364045646848, -6148914691236517888,
            -4611686018427388928, -3074457345618259968]),
    (3, 1, [-3074457345618259968, -1537228672809131008, -2048,
            1537228672809126912, 3074457345618255872]),
    (3, 2, [3074457345618255872, 4611686018427384832, 6148914691236513792,
            7686143364045642752, 2**63]),
    (6, 0, [-9223372036854775808, -8454757700450211328, -7686143364045646848,
            -6917529027641082368, -6148914691236517888]),
    (6, 5, [6148914691236513792, 6917529027641078272, 7686143364045642752,
            8454757700450207232, 2**63]),
    (12, 0, [-9223372036854775808, -8839064868652493568, -8454757700450211328,
             -8070450532247929088, -7686143364045646848]),
]  # fmt: skip
KEYS = {  # key: (index, ordinal, slice) in rings of 3, 6 and 12 with 4 slices
    "123": [(0, 0, 1), (0, 0, 2), (1, 6, 0)],
    "567": [(1, 1, 2), (3, 4, 0), (6, 4, 0)],
    "234": [(2, 2, 3), (5, 5, 2), (11, 11, 0)],
    "a": [(0, 0, 0), (0, 0, 0), (0, 0, 1)],
    "hui": [(2, 2, 3), (5, 5, 2), (11, 11, 0)],
    "hello": [(0, 0, 3), (1, 3, 3), (3, 7, 2)],
    "abcd": [(0, 0, 2), (1, 3, 1), (2, 3, 2)],
    "wxyz": [(2, 2, 2), (5, 5, 0), (10, 5, 1)],
    "mmmm": [(1, 1, 2), (3, 4, 1), (6, 4, 3)],
    "key-0": [(0, 0, 3), (1, 3, 2), (3, 7, 1)],
    "key-1": [(1, 1, 1), (2, 1, 3), (5, 8, 3)],
    "key-2": [(1, 1, 0), (2, 1, 0), (4, 1, 1)],
    "key-3": [(1, 1, 3), (3, 4, 2), (7, 9, 1)],
    "key-4": [(2, 2, 1), (4, 2, 3), (9, 10, 3)],
    "key-5": [(0, 0, 1), (0, 0, 3), (1, 6, 3)],
    "key-6": [(2, 2, 1), (4, 2, 2), (9, 10, 0)],
    "key-7": [(2, 2, 1), (4, 2, 2), (9, 10, 0)],
    "user-42": [(2, 2, 1), (4, 2, 3), (9, 10, 2)],
    "0": [(2, 2, 0), (4, 2, 0), (8, 2, 0)],
    "é": [(2, 2, 1), (4, 2, 3), (9, 10, 2)],
    "日本": [(0, 0, 1), (0, 0, 2), (1, 6, 0)],
}


@pytest.mark.parametrize("size", ORDERS)
def test_order_of_the_ring(size: int) -> None:
    """Ordinals stand in the published order, and each is found at its index."""
    assert ring_order(size) == tuple(map(int, ORDERS[size].split()))
    placement = Placement(size, 8)
    assert [placement.index_of(ordinal) for ordinal in ring_order(size)] == list(range(size))


@pytest.mark.parametrize("size", TOKENS)
def test_tokens_of_the_ring(size: int) -> None:
    """Tokens are the published ones, and survive doubling."""
    placement, double = Placement(size, 8), Placement(2 * size, 8)
    assert [placement.token(index) for index in range(size)] == TOKENS[size]
    for index in range(size):
        assert double.token(2 * index) == placement.token(index)
        assert double.leader(2 * index) == placement.leader(index)


def test_followers() -> None:
    """The two brokers after the leader on the ring follow it."""
    assert [Placement(3, 8).replicas(i) for i in range(3)] == [(0, 1, 2), (1, 2, 0), (2, 0, 1)]
    six = {0: (3, 1), 3: (1, 4), 1: (4, 2), 4: (2, 5), 2: (5, 0), 5: (0, 3)}
    for leader, followers in six.items():
        placement = Placement(6, 8)
        index = placement.index_of(Ordinal(leader))
        assert placement.replicas(index) == (leader, *followers)
    twelve = Placement(12, 8)
    assert twelve.replicas(0) == (0, 6, 3) and twelve.replicas(11) == (11, 0, 6)
    assert Placement(1, 8).replicas(0) == (0,)


@pytest.mark.parametrize(("size", "index", "edges"), BOUNDS)
def test_bounds_of_slices(size: int, index: int, edges: list[int]) -> None:
    """Slices begin and end where published, and hold their first and last token."""
    placement = Placement(size, 4)
    for number, (start, end) in enumerate(pairwise(edges)):
        assert placement.slice_bounds(index, SliceIndex(number)) == (start, end)
        assert placement.locate(Token(start)) == (index, number)
        if end < 2**63:
            assert placement.locate(Token(end - 1)) == (index, number)


def test_projection_across_sizes() -> None:
    """Slice 0 of a range of 3 ends where slice 1 of its half does in a ring of 6."""
    end_of_3 = Placement(3, 4).slice_bounds(0, SliceIndex(0))[1]
    assert end_of_3 == Placement(6, 4).slice_bounds(0, SliceIndex(1))[1] == -7686143364045646848


@pytest.mark.parametrize("key", KEYS)
def test_keys(key: str) -> None:
    """Each key lies at the published index, ordinal and slice."""
    token = token_of(key.encode())
    for size, expected in zip((3, 6, 12), KEYS[key], strict=True):
        placement = Placement(size, 4)
        index, slice_ = placement.locate(token)
        assert (index, placement.leader(index), slice_) == expected


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (TOKEN_MIN, (0, 0)),
        (TOKEN_MAX, (5, 0)),
        (TOKEN_MAX - 10000, (5, 7)),
        (TOKEN_MAX - 999999999999999999, (5, 5)),
        (TOKEN_MIN + RING_UNIT * 2048 // 2, (0, 4)),
    ],
)
def test_edges_of_the_ring(token: int, expected: tuple[int, int]) -> None:
    """The left-over tokens at the top belong to slice 0 of the last range."""
    assert Placement(6, 8).locate(Token(token)) == expected


def test_ring_of_one() -> None:
    """In developer mode the whole ring is one range of equal slices."""
    placement = Placement(1, 8)
    assert placement.locate(TOKEN_MIN) == (0, 0)
    assert placement.locate(Token(-1)) == (0, 3)
    assert placement.locate(Token(0)) == (0, 4)
    assert placement.locate(TOKEN_MAX) == (0, 7)
    assert placement.slice_bounds(0, SliceIndex(7)) == (2**63 - 2**61, 2**63)


def test_sizes_of_rings() -> None:
    """1 and 3 * 2^k are rings, nothing else is."""
    valid = [size for size in range(-3, 100) if ring_size_valid(size)]
    assert valid == [1, 3, 6, 12, 24, 48, 96]
    assert ring_size_valid(12288) and not ring_size_valid(24576)


@pytest.mark.parametrize("workers", range(1, 9))
def test_workers_of_slices(workers: int) -> None:
    """Workers lead contiguous runs that cover every slice once and differ by at most one."""
    runs = [slices_of_worker(each, slices=8, workers=workers) for each in range(workers)]
    assert [slice_ for run in runs for slice_ in run] == list(range(8))
    for worker, run in enumerate(runs):
        for slice_ in run:
            assert worker_of_slice(SliceIndex(slice_), slices=8, workers=workers) == worker
    assert max(map(len, runs)) - min(map(len, runs)) <= 1
