"""Consumer groups, seen and moved from outside: members, positions, lag, seek."""

from typing import Any

from barco.errors import ConflictError, NotFoundError, RequestError, TopicNotFoundError
from barco.model.queues import QueueSettings
from barco.workers.http.base.context import Context
from barco.workers.http.base.known import check_names
from barco.workers.http.base.messages import (
    Request,
    Response,
    check_group,
    check_topic,
    json_response,
)
from barco.workers.http.handlers.read import parse_place

_SETTINGS = tuple(QueueSettings().told())
"""Of a queue, as documents have them."""


class GroupRoutes:
    """Handlers of /v1/groups."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def every(self, request: Request) -> Response:
        """Names of all groups with members or committed positions."""
        await self._context.membership.refresh()
        members = self._context.membership.groups()
        names = set(members)
        for answer in (await self._context.ask_all("groups", {})).values():
            names.update(answer)
        found = [{"group": name, "members": len(members.get(name, ()))} for name in sorted(names)]
        return json_response({"groups": found})

    async def get(self, request: Request) -> Response:
        """Members, positions and lag of one group."""
        group = check_group(request.variables["group"])
        await self._context.membership.refresh()
        members = self._context.membership.groups().get(group, {})
        positions = await self._positions(group)
        if not members and not positions:
            raise NotFoundError("There is no such group.")
        document = {
            "group": group,
            "members": [
                {
                    "consumerId": member.consumer_id,
                    "sessionMs": member.session_ms,
                    "weight": member.weight,
                    "topics": sorted(member.assigned),
                    "slices": {
                        topic: list(indexes) for topic, indexes in sorted(member.assigned.items())
                    },
                }
                for _, member in sorted(members.items())
            ],
            "positions": positions,
            "lag": sum(position["lag"] for position in positions),
        }
        queues = {p["topic"]: p["queue"] for p in positions if "queue" in p}
        if queues:
            document["queues"] = {
                topic: {name: some[name] for name in _SETTINGS} for topic, some in queues.items()
            }
        return json_response(document)

    async def _positions(self, group: str, *, patient: bool = False) -> list[dict[str, Any]]:
        found = []
        context = self._context
        answers = await context.ask_all("positions", {"group": group}, patient=patient)
        for answer in answers.values():
            for place in answer:
                # Below the start nothing is left to read: it is no lag any more.
                lag = max(0, place["end"] - max(place["committed"], place["start"]))
                found.append(
                    {
                        "topic": place["topic"],
                        "token": context.token(place["slice"]),
                        "rangeIndex": context.index(place["slice"]),
                        "worker": context.ranges.shard_of(place["slice"]),
                        "offset": str(place["committed"]),
                        "deliveredOffset": str(place["delivered"]),
                        "startOffset": str(place["start"]),
                        "endOffset": str(place["end"]),
                        "lag": lag,
                        "consumerId": place["holder"],
                        **({"queue": place["queue"]} if "queue" in place else {}),
                    }
                )
        return sorted(
            found, key=lambda each: (each["topic"], int(each["token"]), each["rangeIndex"])
        )

    async def seek(self, request: Request) -> Response:
        """Move a group's positions, also back: an explicit operation of an administrator."""
        group = check_group(request.variables["group"])
        given = request.json()
        if isinstance(given, dict):
            check_names("field", given, ("topic", "to"))
        if not isinstance(given, dict) or set(given) != {"topic", "to"}:
            raise RequestError('The body is to be {"topic": ..., "to": ...}.')
        if not isinstance(given["topic"], str):
            raise RequestError("The topic is a name.")
        topic = check_topic(given["topic"])
        args = {"group": group, "topic": topic, "to": self._target(given["to"])}
        if not await self._context.topic_exists(topic, patient=True):
            raise TopicNotFoundError(f"There is no topic {topic}.")  # Nothing would ever be read.
        args |= await self._context.begin_group(request, "seek", args)
        await self._context.change_all("seek", args)
        moved = await self._positions(group, patient=True)
        positions = [each for each in moved if each["topic"] == topic]
        return json_response({"group": group, "topic": topic, "positions": positions})

    def _target(self, to: Any) -> str | dict[int, str | int]:
        if isinstance(to, str):
            place = parse_place(to)
            if isinstance(place, int):
                raise RequestError('A cursor belongs to one slice: {"slices": {"0": cursor}}.')
            return place
        slices = to.get("slices") if isinstance(to, dict) and len(to) == 1 else None
        if not isinstance(slices, dict) or not slices:
            raise RequestError(
                '"to" is "earliest", "latest", "timestamp:<µs>", a time as 2026-01-31T12:00:00Z, '
                'or {"slices": {"0": cursor}}.'
            )
        known = {str(number) for number in self._context.numbers}
        target: dict[int, str | int] = {}
        for name, place in slices.items():
            if name not in known or not isinstance(place, str):
                raise RequestError(
                    "Slices are named by their index, each with a cursor, an end or a time."
                )
            target[int(name)] = parse_place(place)
        return target

    async def delete(self, request: Request) -> Response:
        """Forget a group's positions. It must have no members."""
        group = check_group(request.variables["group"])
        await self._context.membership.refresh()
        if group in self._context.membership.groups():
            raise ConflictError("The group has members: they say goodbye first.")
        if not await self._positions(group, patient=True):
            raise NotFoundError("There is no such group.")
        await self._context.change_all("forget", {"group": group})
        return Response(204)
