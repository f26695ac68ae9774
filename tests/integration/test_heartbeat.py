"""A handler that takes longer than the session keeps its slices; one that hangs does not."""

import time

import pytest
from running import RunningBroker

import barco

SESSION_S = 5.0


@pytest.mark.parametrize(("busy_max", "kept"), [(3600.0, True), (0.0, False)])
def test_a_handler_that_takes_long(broker: RunningBroker, busy_max: float, kept: bool) -> None:
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    topic, group = f"t{kept}", f"g{kept}"
    with (
        barco.Producer(endpoint) as producer,
        barco.Consumer(
            topic, group, endpoint, start="earliest", session_seconds=SESSION_S,
            busy_seconds_max=busy_max,
        ) as slow,
        barco.Consumer(topic, group, endpoint, start="earliest") as other,
    ):  # fmt: skip
        values = {str(number).encode() for number in range(40)}
        mine: set[bytes] = set()
        others: set[bytes] = set()
        for _ in range(2):  # Once to find who has which slices; what comes then is to be handled.
            for value in values:
                producer.send(topic, value, key=value)
            producer.flush(60)
            mine.clear()
            deadline = time.monotonic() + 60
            while not (mine and others) and time.monotonic() < deadline:
                others |= {event.value for event in other.poll(0.2)}
                mine = {event.value for event in slow.poll(0.5)}
        assert mine and others
        again: set[bytes] = set()
        busy_until = time.monotonic() + SESSION_S + 3
        while time.monotonic() < busy_until:
            again |= {event.value for event in other.poll(0.5)}
        assert bool(again & mine) is not kept, "what it is busy with is nobody else's"
        assert not kept or slow.commit()
