"""Settings of topics as a shard takes them up: of one topic there may be several records."""

from typing import Any

import msgpack

from barco.workers.shard.topics import TOPICS, TopicRegistry


class Core:
    """Values of `__topics`, and streams that can be cut."""

    def __init__(self, values: list[dict[str, Any]]) -> None:
        self.values = [(value["topic"].encode(), msgpack.packb(value)) for value in values]
        self.starts = dict.fromkeys(range(8), 0)
        self.told: list[tuple[str, bool]] = []
        """Topics that the core heard of, and whether their values are looked at."""

    def compacted(self, topic: str) -> list[tuple[bytes, bytes]]:
        assert topic == TOPICS
        return self.values

    def streams(self, topic: str | None = None) -> list[tuple[str, int, int, int, int]]:
        return [("t", index, start, 100, 0) for index, start in self.starts.items()]

    def truncate_stream(self, topic: str, index: int, start: int) -> None:
        self.starts[index] = max(self.starts[index], start)

    def stream_ends(self, topic: str, index: int) -> tuple[int, int]:
        assert (topic, index) == (TOPICS, 0)
        return (0, len(self.values))

    def topic_set(self, topic: str, *settings: Any) -> None:
        self.told.append((topic, settings[-1]))


def record(version: int, **more: Any) -> dict[str, Any]:
    stamp = {"version": version, "changed_us": 1, "author": 0, "created_us": 1}
    return {"topic": "t"} | stamp | more


def test_of_two_ranges_that_became_one_the_later_decision_counts() -> None:
    """Each has kept it in its first slice. What one had deleted stays deleted in its slices."""
    deleted = record(2, deleted=True, ends={4: 50, 5: 60})
    later = record(3, retention_hours=7)
    for values in ([deleted, later], [later, deleted]):
        core = Core(values)
        registry = TopicRegistry(core, None, range(8))  # type: ignore[arg-type]
        registry.open()
        known = registry.record("t")
        assert known is not None and known.version == 3 and registry.retention("t") == (7, None)
        assert core.starts == dict.fromkeys(range(8), 0) | {4: 50, 5: 60}
        assert registry.digest()[1] == 1


def test_who_follows_hears_of_settings_once() -> None:
    """What a leader wrote to the log is taken up; the core is not told of every topic each time."""
    core = Core([])
    registry = TopicRegistry(core, None, range(8))  # type: ignore[arg-type]
    registry.follow()
    core.told.clear()
    core.values = Core([record(1, schema_check="reject")]).values
    registry.follow()
    assert core.told == [("t", True)] and registry.schema_check("t") == "reject"
    registry.follow()
    assert core.told == [("t", True)]
    core.values += Core([record(2, schema_check="off")]).values
    registry.follow()
    assert core.told[1:] == [("t", False)] and registry.schema_check("t") == "off"
