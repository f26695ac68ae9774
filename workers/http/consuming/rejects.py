"""Events that a consumer can not process: to the dead letters, in one step with the position."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barco.errors import BarcoError, ConflictError, NotReadyError, RequestError
from barco.model.access import User
from barco.model.queues import DELIVERIES_MAX, REASON_BYTES_MAX
from barco.workers.groups.views import Member
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import Request, Response
from barco.workers.http.base.waiting import LeaderWait
from barco.workers.http.consuming.positions import PositionCommits, Positions

REJECTED_MAX = 100
"""Events of one request, one of a slice: each is read and copied by its leader."""

_REJECT_SECONDS_MAX = 10.0

Graveyard = Callable[[User, str, str | None], Awaitable[str]]
"""The topic of a topic's dead letters, by the name that was given: it is there, and may be written
to."""


class Rejects:
    """Sends each event's place to the leader of its slice, which has the event."""

    def __init__(self, context: Context, positions: PositionCommits, graveyard: Graveyard) -> None:
        self._context, self._positions, self._graveyard = context, positions, graveyard

    async def reject(self, request: Request, member: Member) -> Response:
        """204 once they are dead letters and all up to them is committed, durably; 409 names the
        slices of those that are not. It can be repeated: what is committed is not done again."""
        given = request.json()
        left = self._positions.asked(given, "events", "reason", "count", "dead", most=REJECTED_MAX)
        more = {"reason": reason_of(given.get("reason"), "rejected"), "count": _count(given)}
        lost = {slot for slot in left if slot[0] not in member.assigned}
        left = {slot: at for slot, at in left.items() if slot not in lost}
        name = given.get("dead")
        if name is not None and not isinstance(name, str):
            raise RequestError("dead is the name of a topic.")
        topics = sorted({topic for topic, _ in left})
        more["dead"] = {each: await self._graveyard(request.user, each, name) for each in topics}
        wait = LeaderWait()
        while left:
            failed = await self._send(member, left, lost, more)
            if failed is not None and not await wait.again():
                raise failed
        if lost:
            raise ConflictError(
                "These slices are not with this consumer, or their event was not delivered; "
                "everything else is done.",
                slices=sorted(f"{topic}/{number}" for topic, number in lost),
            )
        return Response(204)

    async def _send(
        self,
        member: Member,
        left: Positions,
        lost: set[tuple[str, int]],
        more: Mapping[str, Any],
    ) -> BarcoError | None:
        """One try. What is done leaves `left`; who did not answer is asked again, and why."""
        asked: dict[int, list[list[Any]]] = {}
        failed: BarcoError | None = None
        for (topic, number), at in left.items():
            try:
                asked.setdefault(self._context.owner(number), []).append([topic, number, at])
            except NotReadyError as error:
                failed = error
        who = {"consumer": member.consumer_id, "session": member.session, "group": member.group}
        answers = await self._context.siblings.broadcast(
            "reject",
            {worker: {**who, **more, "events": some} for worker, some in asked.items()},
            _REJECT_SECONDS_MAX,
        )
        for worker, answer in answers.items():
            if isinstance(answer, BarcoError):
                if answer.status < 500:
                    raise answer
                failed = answer
                continue
            lost |= {(topic, number) for topic, number in answer}
            for topic, number, _ in asked[worker]:
                del left[topic, number]
        return failed


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
