"""Tables of processes: the first one, what is added and taken out, and what can not be."""

import pytest
from msgspec.structs import replace

from barco.limits import PROCESSES_MAX
from barco.model.placement import Placement
from barco.model.ranges import (
    HeldRange,
    ProcessTable,
    directory_of,
    end_of_slice,
    first_table,
    flaw,
    from_plain,
    peer_of,
    process_of,
    to_plain,
    token_of_slice,
)
from barco.model.replicas import Replicas
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.types import Ordinal

THREE = Placement(3, 8)


@pytest.mark.parametrize("size", [1, 3, 6, 12])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_the_first_tables_hold_the_whole_ring(size: int, workers: int) -> None:
    """Each slice is in ranges of one shape, at each of their members, and nowhere else."""
    cut = Placement(size, 8)
    replicas = Replicas(cut, workers)
    seen: dict[int, list[tuple[int, HeldRange]]] = {}
    for ordinal in map(Ordinal, range(size)):
        table = first_table(replicas, ordinal)
        assert flaw(table, cut, ordinal) is None
        assert table.numbers == tuple(range(replicas.processes))
        assert len(table.owned_by(ordinal)) == workers
        for held in table:
            assert (ordinal, held.number) in replicas.holders(
                replicas.shard_of((ordinal, held.number))
            )
            for number in held.numbers:
                seen.setdefault(number, []).append((ordinal, held))
    assert sorted(seen) == list(range(size * 8))
    for number, found in seen.items():
        assert {ordinal for ordinal, _ in found} == set(found[0][1].members)
        assert len({(held.token, held.members) for _, held in found}) == 1
        assert token_of_slice(cut, number) >= found[0][1].token


def test_tokens_of_slices_are_the_borders_of_ranges() -> None:
    assert token_of_slice(THREE, 0) == TOKEN_MIN and end_of_slice(THREE, 23) == TOKEN_MAX + 1
    assert token_of_slice(THREE, 8) == THREE.token(1) == end_of_slice(THREE, 7)
    assert directory_of(TOKEN_MIN) == "range--9223372036854775808"


def test_one_number_for_each_process() -> None:
    assert peer_of((Ordinal(0), 5)) == 5, "with one broker that is the number of the process"
    for process in ((Ordinal(0), 0), (Ordinal(2), PROCESSES_MAX - 1), (Ordinal(12287), 383)):
        assert process_of(peer_of(process)) == process


def test_a_process_more_gets_the_lowest_number_that_is_free() -> None:
    table = first_table(Replicas(THREE, 2), Ordinal(1))
    new = HeldRange(
        token=token_of_slice(THREE, 10),
        first=10,
        slices=2,
        number=0,
        members=(Ordinal(1), Ordinal(0)),
        genesis=False,
    )
    more = table.with_range(new)
    assert more.holding(new.token) == replace(new, number=6) and len(more) == 7
    gap = more.without(table.at(2).token)
    assert gap.numbers == (0, 1, 3, 4, 5, 6) and gap.holding(table.at(2).token) is None
    other = gap.with_range(replace(new, token=token_of_slice(THREE, 11), first=11, slices=1))
    assert other.at(2).first == 11 and other.numbers == tuple(range(7))
    with pytest.raises(ValueError, match="has a process already"):
        more.with_range(new)
    with pytest.raises(KeyError):
        gap.at(2)
    assert flaw(other, THREE, Ordinal(1)) is None


def test_a_broker_has_so_many_processes_and_no_more() -> None:
    some = first_table(Replicas(THREE, 1), Ordinal(0)).at(0)
    entries = [replace(some, number=n, token=some.token + n) for n in range(PROCESSES_MAX)]
    with pytest.raises(ValueError, match="at most 768 processes"):
        ProcessTable(tuple(entries)).with_range(replace(some, token=0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"first": 1}, "does not begin with slice 1"),
        ({"token": 5}, "does not begin with slice 0"),
        ({"slices": 25}, "25 slices from 0 on, of 24"),
        ({"slices": 0}, "0 slices"),
        ({"number": PROCESSES_MAX}, "has process 768"),
        ({"members": (Ordinal(1), Ordinal(2))}, "has members [1, 2]"),
        ({"members": (Ordinal(0), Ordinal(0))}, "has members [0, 0]"),
    ],
)
def test_what_can_not_be(change: dict[str, object], words: str) -> None:
    held = first_table(Replicas(THREE, 1), Ordinal(0)).at(0)
    found = flaw(ProcessTable((replace(held, **change),)), THREE, Ordinal(0))
    assert found is not None and words in found


def test_a_table_without_a_range() -> None:
    assert flaw(ProcessTable(()), THREE, Ordinal(0)) == "it has no range"


def test_round_trip() -> None:
    table = first_table(Replicas(THREE, 2), Ordinal(2))
    assert from_plain(to_plain(table)) == table
    assert from_plain(to_plain(table)[::-1]) == table
