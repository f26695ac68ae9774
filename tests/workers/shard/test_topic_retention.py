"""Retention of single topics: who has to keep to what, and where that puts the start."""

import asyncio

import pytest

from barco.workers.shard.topic_retention import HOUR_US, StreamLimit, TopicRetention, plan

NOW = 1_700_000_000_000_000


class Settings:
    def __init__(self, **topics):
        self.topics = topics

    def names(self):
        return sorted(self.topics)

    def retention(self, topic):
        return self.topics[topic]


class Streams:
    def __init__(self, **ends):
        self.ends = {("t", int(name[1:])): given for name, given in ends.items()}

    def stream_ends(self, topic, slice):
        return self.ends.get((topic, slice))

    def truncate_stream(self, topic, slice, start_offset):
        start, end = self.ends[topic, slice]
        assert start < start_offset <= end
        self.ends[topic, slice] = (start_offset, end)


class Extents:
    """One chunk of 10 bytes for every 10 events; event n has the timestamp NOW - (100 - n) h."""

    def __init__(self, end=100):
        self.end = end
        self.asked = []

    async def since(self, topic, slice_, timestamp_us):
        self.asked.append("since")
        offset = 100 - (NOW - timestamp_us) // HOUR_US
        return None if offset > self.end else max(0, offset // 10 * 10)

    async def within(self, topic, slice_, bytes_max):
        self.asked.append("within")
        return max(0, self.end - max(10, bytes_max // 10 * 10))

    def forget(self):
        self.asked.append("forget")


def run(settings, streams, extents, slices=range(2)):
    retention = TopicRetention(settings, streams, extents, slices=slices, slices_in_all=8)
    return asyncio.run(retention.run_once(NOW))


def test_only_topics_with_a_retention_of_their_own():
    settings = Settings(a=(None, None), b=(0, 0), c=(2, None), d=(None, 80), e=(1, 7))
    assert plan(settings, range(4, 6), 8, NOW) == [
        StreamLimit(("c", 4), NOW - 2 * HOUR_US, 0),
        StreamLimit(("c", 5), NOW - 2 * HOUR_US, 0),
        StreamLimit(("d", 4), 0, 10),
        StreamLimit(("d", 5), 0, 10),
        StreamLimit(("e", 4), NOW - HOUR_US, 1),
        StreamLimit(("e", 5), NOW - HOUR_US, 1),
    ]


@pytest.mark.parametrize(
    ("hours", "size", "start"),
    [
        (200, None, 0),
        (55, None, 40),
        (50, None, 50),
        (None, 8 * 1000, 0),
        (None, 8 * 35, 70),
        (None, 1, 90),  # The newest chunk always stays.
        (50, 8 * 80, 50),
        (50, 8 * 20, 80),
    ],
)
def test_the_start_moves_to_the_first_chunk_that_is_kept(hours, size, start):
    streams = Streams(s0=(0, 100), s1=(60, 100))
    gone = run(Settings(t=(hours, size)), streams, Extents())
    assert streams.ends == {("t", 0): (start, 100), ("t", 1): (max(60, start), 100)}
    assert gone == start + max(0, start - 60)


def test_everything_may_be_too_old():
    class AllOld(Extents):
        async def since(self, topic, slice_, timestamp_us):
            return None

    streams = Streams(s0=(0, 100))
    assert run(Settings(t=(1, 8 * 50)), streams, AllOld()) == 100
    assert streams.ends["t", 0] == (100, 100)


def test_what_comes_in_meanwhile_stays():
    streams = Streams(s0=(0, 100))

    class Busy(Extents):
        async def since(self, topic, slice_, timestamp_us):
            streams.ends["t", 0] = (0, 150)

    run(Settings(t=(1, None)), streams, Busy(), slices=range(1))
    assert streams.ends["t", 0] == (100, 150)


def test_empty_and_unknown_slices_are_not_looked_at():
    extents = Extents()
    assert run(Settings(t=(1, 1)), Streams(s1=(5, 5)), extents) == 0
    assert extents.asked == ["forget"]
