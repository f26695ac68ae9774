"""Bounds of listening that need no socket; the rest is in tests/integration/test_listen.py."""

from typing import Any

import pytest
from twin import Broker, run

from barco.errors import BusyError
from barco.workers.http.listening import feeds
from barco.workers.http.listening.feeds import Feeds

STREAM = {"Accept": "text/event-stream"}


@run
async def test_a_topic_of_too_many_slices_is_heard_by_slice() -> None:
    broker = Broker(slices=128)
    broker.produce("t", 0, b"1")
    answer = await broker.request("GET", "/v1/topic/t/events", headers=STREAM)
    assert answer.status == 400
    assert "128 slices, and is heard as a whole with at most 64" in answer.json["detail"]
    assert "/v1/topic/t/slices" in answer.json["detail"], "what to do instead"


@run
async def test_what_has_an_end_is_not_for_a_stream() -> None:
    broker = Broker()
    path = f"/v1/topic/t/slices/{-(2**63)}/0/events"
    for name in ("to", "waitMs", "maxBytes", "columns"):
        answer = await broker.request("GET", path, {name: "1"}, headers=STREAM)
        assert (answer.status, name in answer.json["detail"]) == (400, True)


def test_a_worker_reads_no_more_slices_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "READERS_MAX", 2)
    nothing: Any = None  # It is refused before anybody is asked.

    @run
    async def main() -> None:
        with pytest.raises(BusyError, match="as many slices"):
            await Feeds(nothing, nothing, nothing).get("t", (0, 1, 2), whole=True)

    main()
