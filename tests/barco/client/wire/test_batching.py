"""The batching machine alone: no loop, no clock, no network."""

import random

import pytest

from barco.client.base.errors import ConnectError, TransportError, response_error
from barco.client.wire import delivery
from barco.client.wire.batching import (
    TIMESTAMP_SPAN_US_MAX,
    BatchAck,
    Batcher,
    Limits,
    SliceKey,
)
from barco.client.wire.delivery import Next, judge, pause_s
from barco.client.wire.http1 import Response

SLICES = [SliceKey(-(2**63), number) for number in range(4)]


def batcher(batch_bytes=100, linger_s=1.0):
    return Batcher(Limits(batch_bytes, linger_s), "a" * 32, "b" * 32)


def test_a_batch_goes_when_it_is_old_enough():
    machine = batcher()
    lane = machine.keyed_lane("t", SLICES[0])
    machine.add(lane, b"k", b"v", None, 10.0)
    assert machine.news() == [lane]
    assert machine.news() == []
    assert lane.take(10.5, 1.0) is None
    assert lane.deadline(1.0) == 11.0
    batch = lane.take(11.0, 1.0)
    assert batch.values == [b"v"]
    assert lane.take(99.0, 1.0) is None, "one in flight"


def test_a_full_batch_goes_at_once_and_the_next_waits_for_it():
    machine = batcher()
    lane = machine.keyed_lane("t", SLICES[0])
    for number in range(25):
        machine.add(lane, b"k", b"%09d" % number, None, 10.0)
    first = lane.take(10.0, 1.0)
    assert [first.values[0], len(first), first.sequence] == [b"000000000", 10, 0]
    assert lane.take(10.0, 1.0) is None
    lane.acknowledged(first)
    second = lane.take(10.0, 1.0)
    assert [second.values[0], second.sequence] == [b"000000010", 1]
    lane.given_up(second)
    third = lane.take(11.0, 1.0)
    assert [len(third), third.sequence] == [5, 1], "a refused batch used up no sequence"


def test_what_may_be_stored_is_fenced_by_a_new_epoch():
    machine = batcher()
    lane = machine.keyed_lane("t", SLICES[0])
    machine.add(lane, b"k", b"v", None, 0.0)
    batch = lane.take(5.0, 1.0)
    batch.maybe_written = True
    lane.given_up(batch)
    assert (lane.producer_epoch, lane.next_sequence) == (1, 0)


def test_memory_is_counted_until_it_is_free():
    machine = batcher(batch_bytes=1_000)
    lane = machine.keyed_lane("t", SLICES[0])
    for _ in range(5):
        machine.add(lane, b"kk", b"v" * 100, None, 0.0)
    assert machine.buffered_bytes == 5 * (102 + 96)
    batch = lane.take(5.0, 1.0)
    machine.forget(batch)
    assert machine.buffered_bytes == 0


@pytest.mark.parametrize("seed", range(40))
def test_extending_with_times_is_the_same_as_adding(seed: int) -> None:
    """Also where one is so far from another that they cannot be in one batch."""
    chance = random.Random(seed)
    count, near = chance.randint(1, 60), 1_700_000_000_000_000
    far = [near, near, near + TIMESTAMP_SPAN_US_MAX, near + 2 * TIMESTAMP_SPAN_US_MAX]
    times = [chance.choice(far) + chance.randint(0, 9) for _ in range(count)]
    values: list[bytes | None] = [b"v" * chance.randint(0, 30) for _ in range(count)]
    keys = [b"k"] * count
    one, many = batcher(), batcher()
    slow, fast = one.keyed_lane("t", SLICES[0]), many.keyed_lane("t", SLICES[0])
    for value, time_us in zip(values, times, strict=True):
        one.add(slow, b"k", value, time_us, 0.0)
    cut = chance.randint(0, count)
    for part in (slice(0, cut), slice(cut, None)):
        many.extend(fast, keys[part], values[part], lambda *_: None, 0.0, (), times[part])
    for lane in (slow, fast):
        lane.sealed.extend([lane.open] if lane.open else [])
    assert [b.values for b in slow.sealed] == [b.values for b in fast.sealed]
    assert [b.timestamps_us for b in slow.sealed] == [b.timestamps_us for b in fast.sealed]
    assert [each for b in fast.sealed for each in b.timestamps_us] == times
    for batch in fast.sealed:
        assert max(batch.timestamps_us) - min(batch.timestamps_us) <= TIMESTAMP_SPAN_US_MAX
    assert many.buffered_bytes == one.buffered_bytes


def test_extending_is_the_same_as_adding():
    chance = random.Random(7)
    for _ in range(50):
        values = [b"v" * chance.randint(0, 60) for _ in range(chance.randint(1, 40))]
        keys = [b"k" * chance.randint(0, 9) for _ in values]
        one, many = batcher(), batcher()
        slow, fast = one.keyed_lane("t", SLICES[0]), many.keyed_lane("t", SLICES[0])
        for key, value in zip(keys, values, strict=True):
            one.add(slow, key, value, None, 0.0)
        told: list[int] = []

        def on_done(count, error, told=told):
            told.append(count)

        cut = chance.randint(0, len(values))
        for part in (slice(0, cut), slice(cut, None)):
            many.extend(fast, keys[part], values[part], on_done, 0.0)
        assert many.buffered_bytes == one.buffered_bytes
        for lane in (slow, fast):
            lane.sealed.extend([lane.open] if lane.open else [])
        assert [b.values for b in slow.sealed] == [b.values for b in fast.sealed]
        assert [b.keys for b in slow.sealed] == [b.keys for b in fast.sealed]
        for batch in fast.sealed:
            batch.resolve(BatchAck(1, 0), None)
        assert sum(told) == len(values)


def test_events_without_a_key_stay_for_a_batch_and_then_move_on():
    machine = batcher()
    places = []
    for _ in range(40):
        lane = machine.keyless_lane("t", SLICES, 10)
        machine.add(lane, None, b"v" * 10, None, 0.0)
        places.append(lane.slice.slice)
    assert places == [1] * 10 + [2] * 10 + [3] * 10 + [0] * 10
    assert machine.keyless_lane("t", SLICES, 10, rotate=True).slice.slice == 1


@pytest.mark.parametrize(
    ("answer", "then", "maybe_written"),
    [
        (Response(200, {}, b'{"version":3,"startOffset":"9"}'), Next.DONE, False),
        (Response(200, {}, b"?"), Next.DONE, False),
        (Response(204, {}, b""), Next.DONE, False),
        (Response(400, {}, b""), Next.FAIL, False),
        (Response(403, {}, b""), Next.FAIL, False),
        (Response(404, {}, b""), Next.FAIL, False),
        (Response(408, {}, b""), Next.RETRY, False),
        (Response(409, {}, b'{"expectedSeq":"4"}'), Next.FAIL, False),
        (Response(409, {}, b'{"expectedSeq":"0"}'), Next.RESEQUENCE, False),
        (Response(413, {}, b""), Next.FAIL, False),
        (Response(421, {}, b""), Next.REROUTE, False),
        (Response(429, {}, b""), Next.RETRY, False),
        (Response(500, {}, b""), Next.RETRY, True),
        (Response(503, {}, b""), Next.RETRY, True),
        (Response(503, {"barco-outcome": "not-written"}, b""), Next.RETRY, False),
        (Response(504, {}, b""), Next.RETRY, True),
        (Response(507, {}, b""), Next.RETRY, False),
        (ConnectError("refused"), Next.REROUTE, False),
        (TransportError("lost"), Next.REROUTE, True),
    ],
)
def test_what_answers_mean(answer, then, maybe_written):
    machine = batcher()
    lane = machine.keyed_lane("t", SLICES[0])
    lane.next_sequence = 5
    machine.add(lane, b"k", b"v", None, 0.0)
    batch = lane.take(5.0, 1.0)
    verdict = judge(batch, answer, "here")
    assert (verdict.next, batch.maybe_written) == (then, maybe_written)


def test_pauses_double_with_jitter_and_respect_the_broker():
    chance = random.Random(1)
    for attempts in range(1, 40):
        ceiling = min(delivery.BACKOFF_MAX_S, delivery.BACKOFF_FIRST_S * 2 ** (attempts - 1))
        assert ceiling / 2 <= pause_s(attempts, None, chance) <= ceiling
    assert pause_s(1, 3.0, chance) == 3.0
    assert pause_s(1, 1e9, chance) == delivery.RETRY_AFTER_MAX_S


def test_refusals_keep_what_the_broker_says():
    body = b'{"type":"urn:barco:problem:event-too-large","title":"an event is","limit":5}'
    error = response_error(413, {}, body, "topic t")
    assert type(error).__name__ == "TooLargeError"
    assert str(error) == "topic t: an event is (HTTP 413)"
    assert error.fields == {"limit": 5}
    assert "<html>" in str(response_error(502, {}, b"<html>", "x"))
    assert type(response_error(410, {}, b"")).__name__ == "CursorExpiredError"
