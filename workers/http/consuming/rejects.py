"""Events that a consumer can not process: to the dead letters, in one step with the position."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barco.errors import ConflictError, RequestError
from barco.model.access import User
from barco.model.queues import DELIVERIES_MAX, REASON_BYTES_MAX
from barco.workers.groups.views import Member
from barco.workers.http.base.messages import Request, Response
from barco.workers.http.consuming.positions import PositionCommits

REJECTED_MAX = 100
"""Events of one request, one of a slice: each is read and copied by its leader."""

Graveyard = Callable[[User, str, str | None], Awaitable[str]]
"""The topic of a topic's dead letters, by the name that was given: it is there, and may be written
to."""


class Rejects:
    """Sends each event's place to the leader of its slice, which has the event."""

    def __init__(self, positions: PositionCommits, graveyard: Graveyard) -> None:
        self._positions, self._graveyard = positions, graveyard

    async def reject(self, request: Request, member: Member) -> Response:
        """204 once they are dead letters and all up to them is committed, durably; 409 names the
        slices of those that are not. It can be repeated: what is committed is not done again."""
        given = request.json()
        left = self._positions.asked(given, "events", "reason", "count", "dead", most=REJECTED_MAX)
        more = {"reason": reason_of(given.get("reason"), "rejected"), "count": _count(given)}
        name = given.get("dead")
        if name is not None and not isinstance(name, str):
            raise RequestError("dead is the name of a topic.")
        topics = sorted({topic for topic, _ in left if topic in member.assigned})
        more["dead"] = {each: await self._graveyard(request.user, each, name) for each in topics}
        lost = await self._positions.told(member, left, "reject", "events", **more)
        if lost:
            raise ConflictError(
                "These slices are not with this consumer, or their event was not delivered; "
                "everything else is done.",
                slices=lost,
            )
        return Response(204)


def reason_of(given: Any, default: str) -> str:
    """Why an event is given back, or up."""
    if given is None:
        return default
    if not isinstance(given, str) or len(given.encode()) > REASON_BYTES_MAX:
        raise RequestError(f"reason is a string of at most {REASON_BYTES_MAX} bytes.")
    return given


def _count(given: Mapping[str, Any]) -> int:
    """How often it was tried."""
    count = given.get("count", 1)
    if type(count) is not int or not 1 <= count <= DELIVERIES_MAX:
        raise RequestError(f"count is a whole number from 1 to {DELIVERIES_MAX:,}.")
    return count
