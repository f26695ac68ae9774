"""Room for staged writes: what dead drivers left goes when somebody needs it."""

import random

import pytest
from test_staging import JSON, begin, later, put, stage
from twin import Broker, run

from barco import limits


@run
async def test_what_a_dead_driver_left_goes_when_room_is_needed() -> None:
    """The oldest first, no more than is needed, and nothing whose tasks may be alive."""
    broker = Broker()
    service = broker.services[0]
    assert service is not None
    service.staging._bytes_max = 4_000
    value = random.Random(1).randbytes(1500)
    for number, writer in enumerate(("one", "two")):
        later(service, number)
        assert (await stage(broker, [value], writer=writer)).status == 200
    later(service, limits.STAGED_IDLE_SECONDS - 10)
    assert (await stage(broker, [value], writer="three")).status == 503, "they may be alive"
    later(service, limits.STAGED_IDLE_SECONDS + 10)
    assert (await stage(broker, [value], writer="three")).status == 200
    assert sorted(broker.spools[0].files) == ["three/0", "two/0"]
    path, body = "/v1/writes/two/0", b'{"state":"staged"}'
    assert (await broker.request("PUT", path, headers=JSON, body=body, worker=0)).status == 200
    assert (await stage(broker, [value], writer="four")).status == 503, "two is alive"
    # Of one writer as well, and of too many writes.
    later(service, 3 * limits.STAGED_IDLE_SECONDS)
    assert (await stage(broker, [value], writer="two", batch=1)).status == 200
    assert (await put(broker, "committed", ["a"], {"t": {"0": 1}}, writer="two", batch=1)).json[
        "state"
    ] == "committed"
    assert service.staging.expired >= 2


@run
async def test_too_many_writes_and_what_has_begun_stays() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "STAGED_WRITES_MAX", 2)
        await _two_writes_are_many()


async def _two_writes_are_many() -> None:
    broker = Broker()
    service = broker.services[0]
    assert service is not None
    await begin(broker, service)
    assert (await stage(broker, [b"1"], writer="dead")).status == 200
    assert (await stage(broker, [b"1"], writer="new")).status == 429
    later(service, limits.STAGED_IDLE_SECONDS + 10)
    assert (await stage(broker, [b"1"], writer="new")).status == 200
    assert sorted(broker.spools[0].files) == ["new/0", "q/0"], "what has begun is kept"
    later(service, 3 * limits.STAGED_IDLE_SECONDS)
    assert (await stage(broker, [b"1"], writer="newer")).status == 200
    assert sorted(broker.spools[0].files) == ["newer/0", "q/0"]
