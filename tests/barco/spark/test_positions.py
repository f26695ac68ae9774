"""Positions of a stream: in the checkpoint, compared as text, limited for each batch."""

import json
import random

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from barco.protocol.cursor import Cursor
from barco.spark.base.fetch import DataLossError
from barco.spark.base.options import ReadOptions
from barco.spark.read.plan import Slice
from barco.spark.read.stream import Ends, StreamReader, limited, places_of, position
from barco.types import Epoch, Offset


def at(offset: int, epoch: int = 1) -> Cursor:
    return Cursor(Epoch(epoch), Offset(offset))


def test_the_same_places_are_the_same_text() -> None:
    places = {("t", f"{n}/0"): at(n) for n in range(30)} | {("a", "0/0"): at(7)}
    shuffled = list(places.items())
    random.Random(1).shuffle(shuffled)
    assert json.dumps(position(dict(shuffled))) == json.dumps(position(places))
    assert places_of(json.loads(json.dumps(position(places)))) == places


def test_a_position_of_somebody_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not a cursor"):
        places_of({"t": {"0": "23"}})


@pytest.mark.parametrize("seed", range(40))
def test_limits_are_shared_in_proportion_and_nobody_starves(seed: int) -> None:
    rng = random.Random(seed)
    keys = [("t", f"0/{n}") for n in range(8)]
    start: Ends = {key: at(rng.randrange(100)) for key in keys}
    end: Ends = {key: at(start[key].offset + rng.choice((0, 0, 1, 50, 5000)), 2) for key in keys}
    most = rng.randrange(1, 6000)
    found = limited(start, end, most)
    total = 0
    for key in keys:
        new = found[key].offset - start[key].offset
        has = end[key].offset - start[key].offset
        assert (new > 0) is (has > 0) and new <= has
        total += new
    assert total <= most + len(keys)
    batches = 0
    while found != end:  # It comes to its end.
        found = limited(found, end, most)
        batches += 1
        assert batches < 30_000


def test_a_limit_above_what_there_is() -> None:
    start, end = {("t", "0/0"): at(0)}, {("t", "0/0"): at(10, 3)}
    assert limited(start, end, 10) is end


def test_a_replica_that_is_behind_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader has died: another replica tells an end before the position, and then the new one."""
    reader = StreamReader(ReadOptions(), None)  # type: ignore[arg-type]
    key = ("t", "0/0")
    ends = iter([{key: at(90)}, {key: at(90)}, {key: at(120, 2)}])

    def look(split_bytes: int = 0) -> Ends:
        found = next(ends)
        reader._slices = {key: Slice("t", 0, 0, 0, "", (), 1, 0, found[key].offset)}
        return found

    monkeypatch.setattr(reader, "_look", look)
    begin = position({key: at(100)})
    assert reader.latestOffset(begin, ReadAllAvailable()) == position({key: at(120, 2)})
    monkeypatch.setattr("barco.spark.read.stream.BEHIND_SECONDS", 0.0)
    ends = iter([{key: at(90)}])
    with pytest.raises(DataLossError):
        reader.latestOffset(begin, ReadAllAvailable())


def reader_of(
    monkeypatch: pytest.MonkeyPatch, looks: list[Ends], options: ReadOptions
) -> StreamReader:
    """A reader to which the brokers tell these ends, one after the other, the last for ever."""
    reader = StreamReader(options, None)  # type: ignore[arg-type]

    def look(split_bytes: int = 0) -> Ends:
        found = looks.pop(0) if len(looks) > 1 else looks[0]
        reader._slices = {k: Slice(k[0], 0, 0, 0, "", (), 1, 0, c.offset) for k, c in found.items()}
        return found

    monkeypatch.setattr(reader, "_look", look)
    monkeypatch.setattr("barco.spark.read.stream.BEHIND_PAUSE_S", 0.0)
    return reader


def test_a_run_to_what_is_there_does_not_end_at_what_a_replica_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader has just died when Trigger.AvailableNow starts."""
    key = ("t", "0/0")
    looks = [{key: at(90)}, {key: at(120, 2)}, {key: at(130, 2)}]
    reader = reader_of(monkeypatch, looks, ReadOptions(topics=("t",)))
    reader.prepareForTriggerAvailableNow()
    begin = position({key: at(100)})
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert end == position({key: at(120, 2)})
    assert reader.latestOffset(end, ReadAllAvailable()) == end  # What came later is not of it.


@pytest.mark.parametrize("by", [{"topics": ("t", "u")}, {"pattern": "[tu]"}])
def test_a_topic_that_is_gone_is_told_after_a_restart_too(
    monkeypatch: pytest.MonkeyPatch, by: dict[str, object]
) -> None:
    monkeypatch.setattr("barco.spark.read.stream.BEHIND_SECONDS", 0.0)
    kept, gone, other = ("t", "0/0"), ("u", "0/0"), ("not-asked-for", "0/0")
    begin = position({kept: at(10), gone: at(7), other: at(3)})
    looks: list[Ends] = [{kept: at(12)}]
    reader = reader_of(monkeypatch, looks, ReadOptions(**by))  # type: ignore[arg-type]
    with pytest.raises(DataLossError, match="topic u does not exist any more"):
        reader.latestOffset(begin, ReadAllAvailable())
    lenient = ReadOptions(fail_on_data_loss=False, **by)  # type: ignore[arg-type]
    reader = reader_of(monkeypatch, looks, lenient)
    found = reader.latestOffset(begin, ReadAllAvailable())
    assert found == position({kept: at(12), gone: at(7), other: at(3)})


def test_a_group_is_told_what_is_stored_and_not_what_is_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark asks for the next batch when the one before it is done."""
    key = ("t", "0/0")
    reader = reader_of(monkeypatch, [{key: at(120)}], ReadOptions(topics=("t",), group="g"))
    told: list[object] = []
    monkeypatch.setattr(reader._group, "tell", told.append)
    end = reader.latestOffset(position({key: at(100)}), ReadAllAvailable())
    assert told == [{"t": {0: at(100)}}]
    reader.latestOffset(end, ReadAllAvailable())
    assert told[1:] == [{"t": {0: at(120)}}]
