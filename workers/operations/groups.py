"""Groups seen from outside, at the leader of a shard: where they start, how far they are, seeks."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barco.errors import ConflictError
from barco.workers.groups.consumption import Consumption
from barco.workers.groups.offsets import LAGS_MAX
from barco.workers.queues.queues import Queues
from barco.workers.shard.reads import Reads
from barco.workers.shard.topics import TopicRegistry

Args = Mapping[str, Any]


def _whose(args: Args) -> tuple[str, int]:
    """Who begins a group, if it is new, and how many of them that user may have."""
    return args.get("user", ""), args.get("most", 0)


class GroupDesk:
    """The operations, by the names that frames carry; a group is ordinary or a queue."""

    def __init__(
        self,
        consumption: Consumption,
        queues: Queues,
        reads: Reads,
        topics: TopicRegistry,
        first_slice: int,
    ) -> None:
        self._consumption, self._queues, self._topics = consumption, queues, topics
        self._reads, self._first_slice = reads, first_slice

    def operations(self) -> dict[str, Callable[[Args], Awaitable[Any]]]:
        """By name."""
        return {
            "start_group": self._start_group,
            "groups": self._groups,
            "positions": self._positions,
            "lags": self._lags,
            "seek": self._seek,
            "forget": self._forget,
        }

    def _check_ordinary(self, group: str) -> None:
        if self._queues.is_queue(group):
            raise ConflictError(
                f"Group {group} is a queue: its events are leased and acknowledged "
                "(/v1/queue/GROUP/lease), and it has no positions to be polled from or moved."
            )

    async def _start_group(self, args: Args) -> list[str]:
        """Returns which of the topics there are here: one that is nowhere may be misspelt."""
        self._check_ordinary(args["group"])
        slots = [(topic, index) for topic in args["topics"] for index in self._consumption.slices]
        await self._consumption.start_group(args["group"], slots, args["start"], *_whose(args))
        return [topic for topic in args["topics"] if self._topics.exists(topic)]

    async def _groups(self, args: Args) -> list[str]:
        return sorted({*self._consumption.groups(), *self._queues.groups()})

    async def _positions(self, args: Args) -> list[dict[str, Any]]:
        found = await self._consumption.positions(args["group"])
        slots = list(self._queues.all_of(args["group"]))
        starts = await self._reads.earliest_of([(each.topic, each.slice) for each in slots])
        for slot, start in zip(slots, starts, strict=True):
            window = slot.window
            end = self._queues.end(slot)
            found.append(
                {
                    "topic": slot.topic,
                    "slice": slot.slice,
                    "committed": window.base,
                    "delivered": window.next,
                    "start": start,
                    "end": end,
                    "holder": None,
                    "queue": {
                        **window.settings.told(),
                        "inFlight": window.in_flight,
                        "waiting": window.waiting,
                        "acknowledged": window.done,
                        "dying": len(window.dying),
                    },
                }
            )
        return [{**each, "slice": self._first_slice + each["slice"]} for each in found]

    async def _lags(self, args: Args) -> list[list[Any]]:
        """Of a queue: how far the oldest that is not acknowledged is behind the end."""
        most, first = min(args["most"], LAGS_MAX), self._first_slice
        found = list(await self._consumption.lags(most))
        for slot in self._queues.every():
            lag = self._queues.end(slot) - slot.window.base
            found.append((lag, slot.group, slot.topic, slot.slice))
        largest = sorted(found, key=lambda each: -each[0])[:most]
        return [[lag, group, topic, first + index] for lag, group, topic, index in largest]

    async def _seek(self, args: Args) -> dict[int, int]:
        self._check_ordinary(args["group"])
        topic, to = args["topic"], args["to"]
        offsets: dict[int, int] = {}
        for index in self._consumption.slices:
            place = to.get(self._first_slice + index) if isinstance(to, dict) else to
            if place is not None:
                offsets[index] = await self._offset_at(topic, index, place)
        await self._consumption.seek(args["group"], topic, offsets, *_whose(args))
        return offsets

    async def _offset_at(self, topic: str, index: int, place: str | int) -> int:
        """Of an offset, an end, or a time in microseconds as text."""
        start, end = self._reads.bounds(topic, index)
        if isinstance(place, int):
            return min(max(start, place), end)
        if place in ("earliest", "latest"):
            return start if place == "earliest" else end
        return await self._reads.at_timestamp(topic, index, int(place))

    async def _forget(self, args: Args) -> int:
        queues = await self._queues.forget(args["group"])
        return queues + await self._consumption.forget(args["group"])
