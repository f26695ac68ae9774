"""What a worker answers to consumers of its slices, by the names that frames carry."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barco import limits
from barco.errors import NotReadyError, NotRegisteredError
from barco.workers.groups.consumption import Consumption
from barco.workers.groups.polls import PollRequest, Said, Written
from barco.workers.groups.views import GroupView, Member
from barco.workers.seams import ReactorLike
from barco.workers.shard.appends import Appends
from barco.workers.shard.burial import LastPlace
from barco.workers.shard.reads import Reads, Slot, extent_to_list
from barco.workers.shard.waiting import Waiters

Args = Mapping[str, Any]


class ConsumerDesk:
    """Consumption as operations: slices are numbered in the whole ring."""

    def __init__(
        self,
        reactor: ReactorLike,
        *,
        reads: Reads,
        appends: Appends,
        waiters: Waiters,
        membership: GroupView,
        slices: range,
        first_slice: int,
        peer: int,
        now_us: Callable[[], int],
    ) -> None:
        """first_slice: the number of the token range's first slice."""
        self.consumption = Consumption(
            reactor,
            reads=reads,
            appends=appends,
            waiters=waiters,
            membership=membership,
            slices=slices,
            first_slice=first_slice,
            peer=peer,
            now_us=now_us,
        )
        self.written = Written()
        """The answers that this worker has given to consumers, whoever owns the slices."""
        self.membership = membership
        self.reads = reads
        self.waiters = waiters
        self.first_slice = first_slice

    def operations(self) -> dict[str, Callable[[Args], Awaitable[Any]]]:
        """By name."""
        return {
            "poll": self._poll,
            "wait": self._wait,
            "commit": self._commit,
            "commit_to": self._commit_to,
            "reject": self._reject,
            "goodbye": self._goodbye,
            "revoke": self._revoke,
            "written": self._written,
        }

    async def _member(self, args: Args) -> Member:
        await self.membership.at_least(args["version"])
        member = self.membership.get(args["consumer"])
        if member is None or member.session != args["session"]:
            raise NotRegisteredError("The consumer was registered again, or has gone.")
        return member

    async def _poll(self, args: Args) -> dict[str, Any]:
        request = PollRequest(
            member=await self._member(args),
            budget=args["budget"],
            stored=args["stored"],
            frame=args.get("frame", 0),
            delivery=args["delivery"],
            said=Said(*args["said"]),
            first=args["first"],
            far=args.get("far", False),
            placement=args.get("placement"),
            paused=self._paused(args),
        )
        result = await self.consumption.poll(request)
        return {
            "extents": [extent_to_list(extent, self.first_slice) for extent in result.extents],
            "unavailable": [self.first_slice + index for index in result.unavailable],
            "superseded": result.superseded,
            "direct": result.direct,
        }

    async def _wait(self, args: Args) -> bool:
        """Until the consumer has something to get, or (with topic) the stable end passes offset."""
        timeout = min(args["timeout"], limits.POLL_WAIT_MS_MAX / 1000)
        if (topic := args.get("topic")) is None:
            member, far = await self._member(args), args.get("far", False)
            if not far and args.get("seen") not in (None, member.placement):
                return True  # It has changed on the way. Brokers learn of that at different times.
            paused = self._paused(args)
            return await self.consumption.wait(member, timeout, far=far, paused=paused)
        index, offset = args["slice"], args["offset"]
        return await self.waiters.wait(lambda: self.reads.bounds(topic, index)[1] > offset, timeout)

    def _paused(self, args: Args) -> frozenset[Slot]:
        """As `Paused.told` has them: of these slices the consumer wants nothing now."""
        told = args.get("paused", {})
        return frozenset(
            (topic, number - self.first_slice) for topic in told for number in told[topic]
        )

    async def _commit(self, args: Args) -> list[list[Any]]:
        key = (args["consumer"], args["session"])
        far = args.get("far", False)
        fenced = await self.consumption.commit(key, Said(*args["said"]), far=far)
        lost = [[topic, self.first_slice + index] for topic, index in fenced]
        return lost + self._behind(args)

    async def _commit_to(self, args: Args) -> list[list[Any]]:
        """Of positions [topic, number of the slice, offset] those that are not taken; all others
        are committed."""
        slices, first = self.consumption.slices, self.first_slice
        ends = {(topic, number - first): end for topic, number, end in args["ends"]}
        if not all(index in slices for _, index in ends):
            raise NotReadyError("This worker does not have the slice (any more).")
        key = (args["consumer"], args["session"])
        lost = await self.consumption.commit_to(key, args["group"], ends)
        return [[topic, first + index] for topic, index in lost]

    async def _reject(self, args: Args) -> list[list[Any]]:
        """{"consumer", "session", "group", "events", "dead", "count", "reason"}: of these events
        [topic, number of the slice, offset] those that are not taken; `dead` by topic."""
        slices, first, lost = self.consumption.slices, self.first_slice, []
        if not all(number - first in slices for _, number, _ in args["events"]):
            raise NotReadyError("This worker does not have the slice (any more).")
        key = (args["consumer"], args["session"])
        for topic, number, offset in args["events"]:
            last = LastPlace(args["group"], topic, number - first, number)
            why = (offset, args["count"], args["reason"])
            if not await self.consumption.reject(key, last, why, args["dead"][topic]):
                lost.append([topic, number])
        return lost

    def _behind(self, args: Args) -> list[list[Any]]:
        """Of these ends of what a consumer received, those that the group has not committed: the
        worker that gave it, and kept account of it, may have died or been deposed since."""
        group, committed = args["group"], self.consumption.committed
        mine = ((t, p, end, p - self.first_slice) for t, p, end in args["ends"])
        return [
            [topic, number]
            for topic, number, end, index in mine
            if index in self.consumption.slices and committed(group, topic, index) < end
        ]

    async def _goodbye(self, args: Args) -> None:
        key = (args["consumer"], args["session"])
        said = Said(*args["said"])
        await self.consumption.goodbye(key, commit=args["commit"], said=said)

    async def _written(self, args: Args) -> list[Any] | None:
        answer = self.written.answer((args["consumer"], args["session"]))
        return None if answer is None else [answer.name, answer.ends, answer.at]

    async def _revoke(self, args: Args) -> None:
        self.consumption.revoke((args["consumer"], args["session"]), args["delivery"])
