"""Commits of positions that the consumer names, each the next event to read of a slice."""

import functools
from collections.abc import Mapping
from typing import Any

from barco.errors import BarcoError, ConflictError, NotReadyError, RequestError
from barco.model.placement import Placement
from barco.protocol.cursor import Cursor
from barco.workers.groups.views import Member
from barco.workers.http.base.context import Context
from barco.workers.http.base.known import check_names
from barco.workers.http.base.messages import Request, Response, check_topic, parse_number
from barco.workers.http.base.waiting import LeaderWait

Positions = dict[tuple[str, int], int]
"""By topic and number of the slice in the ring, the offset."""

_BODY = 'The body is to be {"%s": [{"topic": ..., "slice": ..., "cursor": ...}, ...]}.'
_FIELDS = ("topic", "token", "slice", "cursor", "offset")
COMMIT_POSITIONS_MAX = 10_000
"""In one commit: a consumer that has every slice names each."""

_SECONDS_MAX = 10.0
"""For a leader to answer."""


class PositionCommits:
    """Sends each position to the leader of its slice, at whichever broker."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def commit(self, request: Request, member: Member) -> Response:
        """204 once all of them are as durable as an event; 409 names those that are not taken.

        While nobody leads a slice, the next leader is waited for: a commit can be repeated.
        """
        left = self.asked(request.json(), "positions")
        lost = await self.told(member, left, "commit_to", "ends")
        if lost:
            raise ConflictError(
                "These slices are not with this consumer, or the position is behind the committed "
                "one or beyond what was delivered; everything else is committed.",
                slices=lost,
            )
        return Response(204)

    async def told(
        self, member: Member, given: Positions, op: str, name: str, **more: Any
    ) -> list[str]:
        """The leaders of these slices do it, each for its own of the positions, and told `more`;
        the slices, as TOPIC/NUMBER, that refuse, or that are not the consumer's."""
        left = {slot: at for slot, at in given.items() if slot[0] in member.assigned}
        lost = given.keys() - left.keys()
        wait = LeaderWait()
        while left:
            failed = await self._send(member, left, lost, op, name, more)
            if failed is not None and not await wait.again():
                raise failed
        return sorted(f"{topic}/{number}" for topic, number in lost)

    async def _send(
        self,
        member: Member,
        left: Positions,
        lost: set[tuple[str, int]],
        op: str,
        name: str,
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
            op,
            {worker: {**who, **more, name: some} for worker, some in asked.items()},
            _SECONDS_MAX,
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

    def asked(
        self, given: Any, name: str, *more: str, most: int = COMMIT_POSITIONS_MAX
    ) -> Positions:
        """The places that a body names, at most one of a slice; `more` it may say besides."""
        if not isinstance(given, dict):
            raise RequestError(_BODY % name)
        check_names("field", given, (name, *more))
        listed = given.get(name)
        if not isinstance(listed, list) or not 1 <= len(listed) <= most:
            raise RequestError(f"{_BODY % name} At most {most:,} of them.")
        found: Positions = {}
        for each in listed:
            if not isinstance(each, dict):
                raise RequestError(_BODY % name)
            check_names("field", each, _FIELDS)
            slot = self._slot(each)
            if slot in found:
                raise RequestError(f"The slice {slot[0]}/{slot[1]} is given more than once.")
            found[slot] = _offset(each)
        return found

    def _slot(self, given: Mapping[str, Any]) -> tuple[str, int]:
        topic = given.get("topic")
        if not isinstance(topic, str) or type(given.get("slice")) is not int:
            raise RequestError(f"A place has a topic and a slice, one of {', '.join(_FIELDS)}.")
        return check_topic(topic), slice_of(self._context, given)


def slice_of(context: Context, given: Mapping[str, Any]) -> int:
    """The number in the ring of the slice that is given: by its index in the token range that is
    named, else by that number. RequestError: there is none."""
    index, token = given.get("slice"), given.get("token")
    if type(index) is not int:
        raise RequestError("A slice is a whole number.")
    ring, numbers, first = context.ring, context.numbers, 0
    if token is not None:
        named = _firsts(ring).get(str(token))
        if named is None:
            raise RequestError("There is no token range of this token.")
        first, numbers = named, range(ring.slices_per_range)
    if index not in numbers:
        raise RequestError(f"There is no slice {index}: there are {len(numbers)}, from 0 on.")
    return first + index


@functools.lru_cache(1)
def _firsts(ring: Placement) -> dict[str, int]:
    """By the token of each range the number of its first slice: a commit may name thousands."""
    return {str(int(ring.token(at))): at * ring.slices_per_range for at in range(ring.size)}


def _offset(given: Mapping[str, Any]) -> int:
    """The next one to read."""
    cursor, offset = given.get("cursor"), given.get("offset")
    if (cursor is None) == (offset is None):
        raise RequestError("A position has a cursor or an offset.")
    if cursor is None:
        if type(offset) not in (int, str):
            raise RequestError("An offset is a number.")
        return parse_number("The offset", str(offset))
    try:
        return Cursor.parse(cursor if isinstance(cursor, str) else "").offset
    except ValueError:
        raise RequestError("This is no cursor: use one that an answer gave.") from None
