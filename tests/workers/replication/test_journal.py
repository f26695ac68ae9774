"""The journal tells what is stable, and nothing after the first thing that went wrong."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barco.cluster.state.effects import Persist
from barco.cluster.state.events import Persisted
from barco.errors import BarcoError, DiskFullError
from barco.model.generation import Ballot, Generation, Gid, Identity, Kind, Successor
from barco.protocol.replication import AsideRecord, DecidedRecord, PromisedRecord
from barco.types import Epoch, Ordinal, Token
from barco.workers.replication.journal import Journal, last_decisions

GID = Gid(0, 2)  # type: ignore[arg-type]


def promise(serial: int) -> Persist:
    return Persist(serial, (PromisedRecord(GID, Ballot(serial, 0, 7)),))  # type: ignore[arg-type]


class Lineage:
    """Fails at the appends that it is told to, with what it is told to."""

    def __init__(self, errors: dict[int, Exception]) -> None:
        self.errors = errors
        self.calls = 0
        self.stable: list[Any] = []

    def add_journal(self, records: list[Any]) -> None:
        self.calls += 1
        if error := self.errors.get(self.calls):
            raise error
        self.stable += records


class Bulk:
    async def run(self, call: Callable[..., Any], *args: Any) -> Any:
        await asyncio.sleep(0)
        return call(*args)


def told_of(errors: dict[int, Exception], batches: int = 3) -> tuple[list[Any], Lineage]:
    """What is told of so many appends, one after the other, and what became stable."""
    told: list[Any] = []
    lineage = Lineage(errors)

    async def main() -> None:
        journal = Journal(
            lineage,  # type: ignore[arg-type]
            Bulk(),  # type: ignore[arg-type]
            tell=lambda event: told.append(
                event.serial if isinstance(event, Persisted) else event.reason
            ),
        )
        for serial in range(1, batches + 1):
            journal.add(promise(serial))
            await asyncio.sleep(0.002)
        await journal.close()

    asyncio.run(main())
    return told, lineage


def test_what_is_stable_is_told_in_order() -> None:
    told, lineage = told_of({})
    assert told == [1, 2, 3] and len(lineage.stable) == 3


@pytest.mark.parametrize(
    "error",
    [
        DiskFullError("no"),
        ValueError("bad"),
        AssertionError("rule"),
        MemoryError(),
        OSError(5, "x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_after_any_error_nothing_counts(error: Exception) -> None:
    """The batch that was lost was covered by the next one's `Persisted`."""
    told, lineage = told_of({2: error})
    assert told == [1, str(error) if isinstance(error, BarcoError) else repr(error)]
    assert lineage.calls == 2, "nothing is appended behind a hole"


def test_a_record_that_can_not_be_encoded_is_an_error_too(monkeypatch: Any) -> None:
    from barco.workers.replication import persisting

    def refuse(record: Any) -> Any:
        raise TypeError("no such record")

    monkeypatch.setattr(persisting, "to_map", refuse)
    told, lineage = told_of({})
    assert told == ["TypeError('no such record')"] and not lineage.calls


def a_range(token: int, end: int, epoch: int) -> Generation:
    members = tuple(Identity(Ordinal(each), bytes(16)) for each in range(3))
    return Generation(Gid(Token(token), Epoch(epoch)), end, members[0], 7, members, ())


SPLIT = Successor(5, Kind.SPLIT, (a_range(0, 4, 3), a_range(4, 8, 3)))
HANDED = Successor(9, Kind.HANDOFF, ())


def test_a_decision_is_told_when_it_is_stable_and_not_before() -> None:
    told: list[Any] = []
    lineage = Lineage({2: DiskFullError("no")})

    async def main() -> None:
        journal = Journal(
            lineage,  # type: ignore[arg-type]
            Bulk(),  # type: ignore[arg-type]
            tell=lambda event: told.append(len(lineage.stable)),
            decided=lambda gid, value: told.append((gid, value, len(lineage.stable))),
        )
        for serial, value in enumerate((SPLIT, HANDED), 1):
            journal.add(Persist(serial, (DecidedRecord(GID, value),)))
            assert len(told) == 2 * (serial - 1)
            await asyncio.sleep(0.002)
        await journal.close()

    asyncio.run(main())
    assert told == [1, (GID, SPLIT, 1), 1], "the machine first; what is not stable, to nobody"


def test_of_earlier_starts_what_is_still_so_is_told_again() -> None:
    left, right = (child.gid for child in SPLIT.children)
    relead = Successor(2, Kind.RELEAD, (a_range(0, 4, 4),))
    last = Successor(3, Kind.RELEAD, (a_range(0, 4, 5),))
    records = [
        DecidedRecord(GID, SPLIT),
        DecidedRecord(left, relead),
        promise(1).records[0],
        DecidedRecord(relead.children[0].gid, last),
    ]
    assert [each.gid for each in last_decisions(records)] == [GID, relead.children[0].gid]
    records.append(DecidedRecord(right, HANDED))
    assert [each.gid for each in last_decisions(records)] == [relead.children[0].gid, right]
    # What two others went on without is not so any more.
    records.append(AsideRecord(left, last, 1))
    assert [each.gid for each in last_decisions(records)] == [right, left]
