"""All groups of a shard, at its leader: ordinary ones, and queues."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barco.errors import ConflictError
from barco.workers.groups.desk import ConsumerDesk
from barco.workers.groups.offsets import LAGS_MAX
from barco.workers.queues.desk import QueueDesk
from barco.workers.queues.queues import Queues
from barco.workers.seams import ReactorLike
from barco.workers.shard.appends import Appends

Args = Mapping[str, Any]


class GroupDesk:
    """The operations, by the names that frames carry; a group is ordinary or a queue."""

    def __init__(
        self,
        consumers: ConsumerDesk,
        reactor: ReactorLike,
        appends: Appends,
        now_us: Callable[[], int],
    ) -> None:
        self.queues = Queues(
            reactor,
            reads=consumers.reads,
            appends=appends,
            waiters=consumers.waiters,
            consumption=consumers.consumption,
            first_slice=consumers.first_slice,
            now_us=now_us,
        )
        self._leased = QueueDesk(self.queues, consumers.reads)
        self._ordinary = consumers.operations()
        self._reads, self._first_slice = consumers.reads, consumers.first_slice

    def operations(self) -> dict[str, Callable[[Args], Awaitable[Any]]]:
        """By name."""
        return {
            **self._ordinary,
            **self._leased.operations(),
            "start_group": self._start_group,
            "groups": self._groups,
            "positions": self._positions,
            "lags": self._lags,
            "seek": self._seek,
            "forget": self._forget,
        }

    def _check_ordinary(self, group: str) -> None:
        if self.queues.is_queue(group):
            raise ConflictError(
                f"Group {group} is a queue: its events are leased and acknowledged "
                "(/v1/queue/GROUP/lease), and it has no positions to be polled from or moved."
            )

    async def _start_group(self, args: Args) -> None:
        self._check_ordinary(args["group"])
        await self._ordinary["start_group"](args)

    async def _groups(self, args: Args) -> list[str]:
        return sorted({*await self._ordinary["groups"](args), *self.queues.groups()})

    async def _positions(self, args: Args) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._ordinary["positions"](args)
        for slot in self.queues.all_of(args["group"]):
            window = slot.window
            start = await self._reads.earliest(slot.topic, slot.slice)
            end = self.queues.end(slot)
            found.append(
                {
                    "topic": slot.topic,
                    "slice": self._first_slice + slot.slice,
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
        return found

    async def _lags(self, args: Args) -> list[list[Any]]:
        """Of a queue: how far the oldest that is not acknowledged is behind the end."""
        found: list[list[Any]] = await self._ordinary["lags"](args)
        for slot in self.queues.every():
            lag = self.queues.end(slot) - slot.window.base
            found.append([lag, slot.group, slot.topic, self._first_slice + slot.slice])
        found.sort(key=lambda each: -int(each[0]))
        return found[: min(args["most"], LAGS_MAX)]

    async def _seek(self, args: Args) -> dict[int, int]:
        self._check_ordinary(args["group"])
        moved: dict[int, int] = await self._ordinary["seek"](args)
        return moved

    async def _forget(self, args: Args) -> int:
        return await self.queues.forget(args["group"]) + int(await self._ordinary["forget"](args))
