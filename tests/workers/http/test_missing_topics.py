"""Who registers for a topic that is not there is told so: the name may be misspelt."""

from typing import Any

from twin import Broker, run


@run
async def test_topics_that_are_not_there_yet_are_named_when_registering() -> None:
    broker = Broker()
    broker.produce("orders", 5, b"1")  # At one of two workers alone.
    answer = await broker.register("c", "orders", "oders", "odrers")
    assert (answer.status, answer.headers["barco-missing-topics"]) == (200, "oders,odrers")
    broker.produce("oders", 0, b"1")
    again = await broker.register("c", "orders", "oders", "odrers")
    assert again.headers["barco-missing-topics"] == "odrers"
    assert "barco-missing-topics" not in (await broker.register("d", "orders")).headers


@run
async def test_what_not_every_leader_could_say_is_not_said() -> None:
    """It may be at the one that is of an earlier version, or does not answer."""
    broker = Broker()
    honest = broker.siblings.call

    async def call(worker: int, op: str, args: Any, timeout: float = 5.0) -> Any:
        answer = await honest(worker, op, args, timeout)
        return None if (worker, op) == (1, "start_group") else answer

    broker.siblings.call = call  # type: ignore[method-assign]
    broker.produce("orders", 5, b"1")
    answer = await broker.register("c", "orders")
    assert answer.status == 200 and "barco-missing-topics" not in answer.headers
