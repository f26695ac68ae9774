"""What PolarStreams' consumers may say that is no registration: each is answered, or its connection
would wait for ever. No broker is asked."""

import asyncio
import json

import pytest

from barco.cli.commands.polar.consuming import Consuming, Visitor
from barco.cli.commands.polar.http2 import H2Request
from barco.client.wire.access import Access
from barco.client.wire.transport import Pool

REGISTER = "/v1/consumer/register"


def status(method: str, target: str, body: bytes = b"") -> int:
    async def main() -> int:
        consuming = Consuming(
            Pool(Access(("127.0.0.1:1",))), "127.0.0.1:1", None, from_latest=False
        )
        answer = await Visitor(consuming).answer(H2Request(method, target, {}, body))
        return answer.status

    return asyncio.run(main())


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b"\xff",
        b"[]",
        b"5",
        *(
            json.dumps({"id": "c", "topics": ["t"]} | each).encode()
            for each in (
                {"onNewGroup": []},
                {"onNewGroup": {}},
                {"onNewGroup": "x"},
                {"topics": 5},
                {"topics": ["\ud800"]},
                {"id": "\ud800"},
                {"group": "\udfff"},
                {"id": ""},
            )
        ),
    ],
)
def test_what_is_no_registration_is_answered(body: bytes) -> None:
    assert status("PUT", REGISTER, body) == 400


def test_what_is_no_path_is_answered() -> None:
    assert status("GET", "//[") == 400
    assert status("GET", "") == status("GET", "/v1/nothing") == 404
