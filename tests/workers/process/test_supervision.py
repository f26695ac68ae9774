"""What the supervisor asks of a worker, over the real channel: always answered, once."""

import asyncio
import socket
from typing import Any

import pytest

from barco.errors import BrokerError, ConflictError, unpack_error
from barco.protocol import frame, messages
from barco.workers.process.supervision import Supervision


async def asked(supervision: Supervision, *ops: str) -> list[dict[str, Any]]:
    """The answers, in the order in which they come."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    receiving = await supervision.open(theirs.detach())
    for number, op in enumerate(ops):
        asked = {"type": messages.ASK, "id": number, "op": op, "args": {"to": 4}}
        writer.write(frame.encode(asked))
    async with asyncio.timeout(30):
        answers = [await frame.read_async(reader) for _ in ops]
    writer.close()
    await receiving
    return [each for each in answers if each is not None]


def test_every_question_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    first_may_end = asyncio.Event()

    async def grow(args: dict[str, Any]) -> bytes:
        await first_may_end.wait()
        return b"%d" % args["to"]

    async def refuse(args: dict[str, Any]) -> bytes:
        first_may_end.set()  # So nobody waits behind who takes long.
        raise ConflictError("3 steps are left.", steps=3)

    async def fail(args: dict[str, Any]) -> bytes:
        raise ValueError("a bug")

    supervision = Supervision()
    supervision.on_ask = {"grow": grow, "refuse": refuse, "fail": fail}
    ops = ("grow", "refuse", "fail", "unknown")
    answers = {each["id"]: each for each in asyncio.run(asked(supervision, *ops))}
    assert sorted(answers) == [0, 1, 2, 3]
    assert all(each["type"] == messages.ANSWER for each in answers.values())
    assert (answers[0]["ok"], answers[0]["result"]) == (True, b"4")
    refused = unpack_error(answers[1]["error"])
    assert isinstance(refused, ConflictError) and refused.fields == {"steps": 3}
    assert not answers[1]["ok"]
    for number in (2, 3):
        assert isinstance(unpack_error(answers[number]["error"]), BrokerError)
    assert "the supervisor's question fail failed" in caplog.text and "a bug" in caplog.text
