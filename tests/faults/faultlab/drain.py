"""Reads everything back, three ways: stored chunks and NDJSON by cursor, and a fresh group."""

import json
import time
from collections.abc import Sequence

from faultlab.broker import Broker
from faultlab.load import NDJSON, chunk_events, place_of, slice_path
from faultlab.wire import Answer, Wire

CHUNKS = "application/vnd.barco.chunks"

Event = tuple[int, int, int, str | None, str]
"""slice, epoch, offset, key, value."""


class ReadError(Exception):
    """The broker refused to serve a place."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body


def slices(broker: Broker, topic: str) -> dict[int, int]:
    """The end offset of each slice."""
    wire = Wire(broker.port)
    try:
        answer = wire.call("GET", f"/v1/topic/{topic}/slices")
    finally:
        wire.close()
    if answer.status != 200:
        raise ReadError(answer.status, answer.body.decode("utf-8", "replace"))
    found = json.loads(answer.body)["slices"]
    return {
        place_of(broker.placement, place["token"], place["index"]): int(place["endOffset"])
        for place in found
    }


def read_slice(broker: Broker, topic: str, slice_: int, kind: str) -> list[Event]:
    """From the earliest to the end. ReadError where the broker does not serve something."""
    wire = Wire(broker.port, 30)
    cursor, events = "earliest", []
    try:
        while True:
            target = slice_path(broker.placement, topic, slice_)
            target += f"?from={cursor}&maxBytes=4000000"
            answer = wire.call("GET", target, headers={"Accept": kind})
            if answer.status == 204:
                return events
            if answer.status != 200:
                raise ReadError(answer.status, answer.body.decode("utf-8", "replace"))
            if kind == CHUNKS:
                slices = broker.placement.slices_per_range
                found = chunk_events(answer, slice_, slices)
                events += [tuple(event) for event in found]  # type: ignore
            else:
                events += [_line(broker, line) for line in answer.body.splitlines()]
            cursor = answer.headers["barco-next-cursor"]
    finally:
        wire.close()


def _line(broker: Broker, line: bytes) -> Event:
    event = json.loads(line)
    return (
        place_of(broker.placement, event["token"], event["rangeIndex"]),
        event["version"],
        int(event["offset"]),
        event["key"],
        event["value"],
    )


def drain(broker: Broker, topic: str, kind: str = CHUNKS) -> list[Event]:
    """All events of a topic, slice by slice, in the order of their offsets."""
    places = range(broker.placement.size * broker.placement.slices_per_range)
    return [event for place in places for event in read_slice(broker, topic, place, kind)]


def drain_group(broker: Broker, topic: str, name: str, limit_s: float = 60.0) -> list[Event]:
    """What a group that never was before gets, until two rounds in a row give nothing.

    Of a ring each broker hands out what it leads: all of them are asked. `limit_s`: for so long
    nothing new may come, and no end. How long all of it takes is up to how busy the machine is.
    """
    wires = [Wire(node.port, 30) for node in getattr(broker, "nodes", [broker])]
    events: list[Event] = []
    seen: set[tuple[int, int]] = set()
    try:
        query = f"consumerId={name}&group={name}&topic={topic}&onNewGroup=startFromEarliest"
        answer = wires[0].call("PUT", f"/v1/consumer/register?{query}")
        assert answer.status == 200, answer
        empty, until = 0, time.monotonic() + limit_s
        while empty < 2:
            answers = [_poll(wire, name) for wire in wires]
            found = [event for answer in answers for event in _events(broker, answer)]
            new = {event[:3:2] for event in found} - seen
            if new:
                seen |= new
                until = time.monotonic() + limit_s
            elif time.monotonic() > until:
                raise ReadError(0, _stuck(wires, name, answers, len(events), len(seen)))
            events += found
            empty = 0 if found or not all(map(_whole, answers)) else empty + 1
        for wire in wires:
            assert wire.call("POST", f"/v1/consumer/commit?consumerId={name}").status == 204
        assert wires[0].call("POST", f"/v1/consumer/goodbye?consumerId={name}").status == 200
    finally:
        for wire in wires:
            wire.close()
    return events


def _poll(wire: Wire, name: str) -> Answer:
    """What one broker has. An earlier version in a ring of two (OLDER) has no `scope`, and never
    says what others have."""
    target = f"/v1/consumer/poll?consumerId={name}&maxBytes=4000000&waitMs=200"
    answer = wire.call("POST", f"{target}&scope=broker", headers={"Accept": NDJSON})
    if answer.status == 400 and b"'scope'" in answer.body:
        answer = wire.call("POST", target, headers={"Accept": NDJSON})
    assert answer.status in (200, 204, 503), answer
    return answer


def _events(broker: Broker, answer: Answer) -> list[Event]:
    lines = answer.body.splitlines() if answer.status == 200 else []
    return [_line(broker, line) for line in lines]


def _whole(answer: Answer) -> bool:
    """Whether it could look at everything that it leads: a leader that is new does not hand out
    anything for a while, and says so."""
    return answer.status != 503 and not answer.headers.get("barco-unavailable-slices")


def _stuck(wires: Sequence[Wire], name: str, answers: Sequence[Answer], got: int, new: int) -> str:
    """Everything that may tell why a group does not come to its end."""
    found = [f"the group never comes to an end: {got} events, {new} of them different"]
    for wire, answer in zip(wires, answers, strict=True):
        body = answer.body[:300] if answer.status != 200 else b""
        found.append(f"{answer.status} {answer.headers} {body!r}")
        for target in (f"/v1/groups/{name}", "/status"):
            answer = wire.call("GET", target)
            found.append(f"{target}: {answer.status} {answer.body.decode()}")
    return "\n".join(found)
