"""What the handlers of the routes have in common: the cluster as one worker sees it.

Slices of the whole ring are numbered through from the lowest token. Ranges are named by their
tokens, workers by their number in the cluster. With one broker a slice's number is its index, and
a worker's number is its own.
"""

import asyncio
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from barco.errors import BarcoError, NoLeaderError, NotReadyError, OutcomeUnknownError, PeerError
from barco.model.ranges import peer_of, process_of
from barco.workers.groups.views import GroupView
from barco.workers.http.base.memory import AnswerMemory
from barco.workers.http.base.messages import Request
from barco.workers.http.base.waiting import LeaderWait
from barco.workers.operations.service import ShardService
from barco.workers.seams import SiblingsLike, SupervisorLike


class Context:
    """The shard of this worker, the siblings, the supervisor, and who owns what."""

    def __init__(
        self, service: ShardService, *, siblings: SiblingsLike, supervisor: SupervisorLike
    ) -> None:
        self.service = service
        self.options = service.options
        self.siblings = siblings
        self.supervisor = supervisor
        self.ranges = service.ranges
        self.peer = self.options.peer
        """This worker's number in the cluster."""
        self.ready = False
        self.reason = "The shard is being recovered."
        self.ring = self.options.placement
        self.leaders = service.leaders
        self.memory = AnswerMemory(self.options.memory_bytes // 4)
        self._deliveries = 0
        self._life = secrets.token_hex(4)
        self._polls: set[asyncio.Task[Any]] = set()

    @property
    def membership(self) -> GroupView:
        """The consumer groups."""
        return self.service.membership

    @property
    def processes(self) -> list[int]:
        """Of this broker, by their numbers in the cluster."""
        return self.ranges.peers

    @property
    def numbers(self) -> range:
        """All slices of the ring."""
        return range(self.ring.size * self.ring.slices_per_range)

    def range_of(self, number: int) -> int:
        """The range that a slice of the ring is in."""
        return self.ranges.of_slice(number)

    def token(self, number: int) -> str:
        """The start of the token range of a slice, as answers spell it."""
        return str(self.ring.token(number // self.ring.slices_per_range))

    def index(self, number: int) -> int:
        """The index of a slice within its token range."""
        return number % self.ring.slices_per_range

    def first_slice(self, worker: int) -> int:
        """The number of slice 0 of the token range in which a worker's range begins."""
        first = self.numbers_of(worker).start
        return first - first % self.ring.slices_per_range

    def numbers_of(self, worker: int) -> range:
        """The numbers of the slices of the range that a worker holds, or was told to lead."""
        token = self.ranges.held_by(process_of(worker))
        return range(0) if token is None else self.ranges.numbers_of(token)

    def is_held(self, number: int) -> bool:
        """Whether this process is one of those that hold a slice, as far as it has heard: it may
        have been a member of the slice's range once, or of one that was taken in since."""
        return self.options.process in self.ranges.holders(self.range_of(number))

    def owner(self, number: int) -> int:
        """The worker that leads a slice; NotReadyError if nobody does."""
        worker = self.leaders.peer(self.range_of(number))
        if worker is None:
            raise NoLeaderError("Nobody leads this slice at the moment.")
        return worker

    def owners(self, numbers: Iterable[int]) -> list[int]:
        """The workers that lead any of these slices, wherever they are."""
        found = {self.leaders.peer(token) for token in set(map(self.range_of, numbers))}
        return sorted(worker for worker in found if worker is not None)

    def led_by(self, worker: int) -> set[int]:
        """The numbers of the slices that a worker leads."""
        led = [h.token for h in self.ranges.all if self.leaders.peer(h.token) == worker]
        return {number for token in led for number in self.ranges.numbers_of(token)}

    def owners_here(self, numbers: Iterable[int]) -> list[int]:
        """The workers of this broker that lead any of these slices."""
        found = {self.leaders.peer(token) for token in set(map(self.range_of, numbers))}
        return sorted(worker for worker in self.processes if worker in found)

    def leading_here(self, args: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
        """The same arguments for every worker of this broker that leads its range."""
        return dict.fromkeys(self.owners_here(self.numbers), args)

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Around what only waits and reads: it may be cancelled when its client has gone."""
        task = asyncio.current_task()
        assert task is not None
        self._polls.add(task)
        try:
            yield
        finally:
            self._polls.discard(task)

    def interruptible(self, task: asyncio.Future[Any]) -> bool:
        """Whether this task is within `polling`."""
        return task in self._polls

    def next_delivery(self) -> str:
        """A name for an answer that hands out events; no other process, also none of an earlier
        life, gives it to another one."""
        self._deliveries += 1
        return f"{self.peer:x}-{self._life}-{self._deliveries:x}"

    def everyone(self, args: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
        """The same arguments for every process of this broker."""
        return dict.fromkeys(self.processes, args)

    def every_process(self) -> dict[int, Mapping[str, Any]]:
        """No arguments, for every process of every broker that is known."""
        peers = set(self.processes)
        if self.options.ring_size > 1:
            for ordinal in self.service.neighbours.ordinals:
                peers.update(map(peer_of, self.ranges.processes_of(ordinal)))
        return {peer: {} for peer in peers}

    async def look_all(
        self, op: str, args: Mapping[str, Any], *, timeout: float = 5.0
    ) -> dict[int, Any]:
        """For each range the result of its leader or, where that does not answer, of another worker
        that holds it; a BarcoError stands for itself. For what changes nothing."""
        # Looked up once: a change of leaders in between would ask one twice, and another never.
        holders = {held.token: self.holders(held.token) for held in self.ranges.all}
        # Of what a split has left, nobody may have told of a process yet.
        nobody = NotReadyError("Nobody who holds the range has been heard of yet.")
        answers: dict[int, Any] = dict.fromkeys(holders, nobody)
        for turn in range(self.ranges.seats):
            asked = {}
            for token, workers in holders.items():
                if turn == 0 or isinstance(answers[token], BarcoError):
                    for worker in workers[turn : turn + 1]:
                        asked[worker] = token
            if not asked:
                break
            given = await self.siblings.broadcast(op, dict.fromkeys(asked, args), timeout)
            for worker, answer in given.items():
                answers[asked[worker]] = answer
        return dict(sorted(answers.items()))

    async def ask_all(
        self, op: str, args: Mapping[str, Any], *, timeout: float = 5.0, patient: bool = False
    ) -> dict[int, Any]:
        """As `look_all`, or 503 if nobody who holds a range can answer. patient: beside a change,
        which waits as well while a range has no leader, or one that has just begun."""
        wait = LeaderWait()
        while True:
            answers = await self.look_all(op, args, timeout=timeout)
            failed = [each for each in answers.values() if isinstance(each, BarcoError)]
            if not failed:
                return answers
            if not (patient and all(map(_passes, failed)) and await wait.again()):
                raise as_not_ready(failed[0])

    async def ask_leaders(self, op: str, args: Mapping[str, Any]) -> dict[int, Any]:
        """As `ask_all`, of leaders alone as long as the next one may be about to come: who follows
        may not have heard how far its leader was. Later whoever holds a range tells of it."""
        wait = LeaderWait()
        while True:
            leaders = {held.token: self.leaders.peer(held.token) for held in self.ranges.all}
            known = [peer for peer in leaders.values() if peer is not None]
            told = await self.siblings.broadcast(op, dict.fromkeys(known, args))
            answers = {token: told[peer] for token, peer in leaders.items() if peer is not None}
            failed = [each for each in answers.values() if isinstance(each, BarcoError)]
            if len(answers) == len(leaders) and not failed:
                return dict(sorted(answers.items()))
            if not all(map(_passes, failed)) or not await wait.again():
                return await self.ask_all(op, args)

    async def topic_exists(self, topic: str, *, patient: bool = False) -> bool:
        """Whether anybody has made it, by a call or by an event."""
        told = await self.ask_all("topics", {"topic": topic}, patient=patient)
        return any(answer.get(topic, {}).get("exists") for answer in told.values())

    def seats(self, token: int) -> dict[str, Any]:
        """Where a range is led and where else it is, for documents."""
        processes = self.ranges.holders(token)
        leader = self.leaders.leader(token) or self.ranges.owner(token)
        endpoint = self.service.neighbours.endpoint
        only = self.ring.size == 1
        return {
            "endpoint": endpoint(leader),
            "worker": leader[1],
            "ordinal": self.options.ordinal if only else leader[0],
            "replicas": [self.options.ordinal] if only else [each[0] for each in processes],
            "replicaEndpoints": [endpoint(process) for process in processes],
        }

    def holders(self, token: int) -> list[int]:
        """The workers that hold a range: its leader, then the one of this broker, then others."""
        leader, own = self.leaders.peer(token), self.processes
        workers = [peer_of(process) for process in self.ranges.holders(token)]
        return sorted(workers, key=lambda worker: (worker != leader, worker not in own))

    async def ask(self, worker: int, op: str, args: Mapping[str, Any], timeout: float = 5.0) -> Any:
        """One worker's result. For what changes nothing: no outcome of it is ever unknown."""
        try:
            return await self.siblings.call(worker, op, args, timeout)
        except BarcoError as error:
            raise as_not_ready(error) from None

    async def change_slice(self, number: int, op: str, args: Mapping[str, Any]) -> Any:
        """Change something that the leader of a slice keeps; a next leader is waited for. It may be
        made twice, so it must be such a change."""
        wait = LeaderWait()
        while True:
            try:
                return await self.siblings.call(self.owner(number), op, args)
            except BarcoError as error:
                if not _passes(error) or not await wait.again():
                    raise

    async def begin_group(
        self, request: Request, op: str, args: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Whose a group is that may begin with this; QuotaUsedUpError: the user has too many. Where
        slice 0 is led all are counted, one after the other."""
        user = request.user
        whose = {"user": user.name} if user.name else {}
        if user.quota.groups:
            most = {"most": user.quota.groups}
            await self.change_slice(0, op, {**args, **whose, **most})
        return whose

    async def change_all(self, op: str, args: Mapping[str, Any], *, timeout: float = 10.0) -> None:
        """Change something on every range. It may be made twice, so it must be such a change.

        A next leader is waited for, as by a commit: before anything is done, and where a range's
        leader goes away meanwhile. What all others have is half done for whoever asked.
        """
        wait = LeaderWait()
        everywhere = {held.token for held in self.ranges.all}
        left = set(everywhere)
        failures: dict[int, BarcoError] = {}
        while True:
            failures = await self._change(op, args, left, timeout)
            left.intersection_update(failures)
            if not left:
                return
            if not (all(map(_passes, failures.values())) and await wait.again()):
                break
        failure = next((each for each in failures.values() if not _passes(each)), None)
        failure = failure or failures[min(left)]
        if len(left) < len(everywhere) and failure.status >= 500:
            # Written on some: that is neither done nor "not written".
            raise OutcomeUnknownError("Not every worker has made the change: send it again.")
        raise failure

    async def _change(
        self, op: str, args: Mapping[str, Any], tokens: Iterable[int], timeout: float
    ) -> dict[int, BarcoError]:
        """Ask those who lead these ranges, if each has a leader; who did not do it, and why."""
        leaders = {token: self.leaders.peer(token) for token in tokens}
        asked = {leader: token for token, leader in leaders.items() if leader is not None}
        if len(asked) < len(leaders):
            nobody = NoLeaderError("Nobody leads a part of the ring at the moment.")
            return dict.fromkeys(leaders, nobody)
        answers = await self.siblings.broadcast(op, dict.fromkeys(asked, args), timeout)
        return {asked[peer]: each for peer, each in answers.items() if isinstance(each, BarcoError)}


def _passes(error: BarcoError) -> bool:
    """Whether it may be gone as soon as somebody leads."""
    return isinstance(error, (NotReadyError, OutcomeUnknownError, PeerError))


def as_not_ready(error: BarcoError) -> BarcoError:
    """A read that got no answer has no outcome that could be unknown: it can be tried again."""
    if isinstance(error, (OutcomeUnknownError, PeerError)):
        return NotReadyError("The worker that owns the slice did not answer.")
    return error
