"""Who is asked about a range while its leader changes."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from barco.errors import BarcoError, PeerError
from barco.workers.http.base.context import Context

TOKEN, DEAD, HERE, THIRD = 7, 1, 0, 2


def test_each_holder_is_asked_once_though_the_leader_changes_meanwhile() -> None:
    """The one that died was asked again, and the one that had the answer never."""
    orders = iter([[DEAD, HERE, THIRD], [HERE, DEAD, THIRD], [THIRD, HERE, DEAD]])
    asked = []

    async def broadcast(
        op: str, args: Mapping[int, Any], timeout: float
    ) -> dict[int, str | BarcoError]:
        asked.extend(args)
        return {each: "it" if each == THIRD else PeerError("no answer") for each in args}

    context: Any = SimpleNamespace(
        ranges=SimpleNamespace(all=[SimpleNamespace(token=TOKEN)], seats=3),
        holders=lambda token: next(orders),
        siblings=SimpleNamespace(broadcast=broadcast),
    )
    assert asyncio.run(Context.look_all(context, "topics", {})) == {TOKEN: "it"}
    assert asked == [DEAD, HERE, THIRD]
