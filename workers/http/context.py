"""What the handlers of the routes have in common: the broker as one worker sees it."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from barco.errors import BarcoError, NotReadyError, OutcomeUnknownError, PeerError
from barco.model.placement import slices_of_worker, worker_of_slice
from barco.types import SliceIndex
from barco.workers.http.memory import AnswerMemory
from barco.workers.membership import Membership
from barco.workers.seams import SiblingsLike, SupervisorLike
from barco.workers.service import ShardService


class Context:
    """The shard of this worker, the siblings, the supervisor, and who owns what."""

    def __init__(
        self, service: ShardService, *, siblings: SiblingsLike, supervisor: SupervisorLike
    ) -> None:
        self.service = service
        self.options = service.options
        self.siblings = siblings
        self.supervisor = supervisor
        self.replicas = self.options.replicas
        first = self.options.peer - self.options.worker
        self.processes = range(first, first + self.replicas.processes)
        """Of this broker, by their numbers in the cluster."""
        self.ready = False
        self.reason = "The shard is being recovered."
        count, slices = self.options.workers, self.options.slices_per_range
        self.slices_of = [
            slices_of_worker(worker, slices=slices, workers=count) for worker in range(count)
        ]
        self.memory = AnswerMemory(self.options.memory_bytes // 4)
        self._deliveries = 0
        self._polls: set[asyncio.Task[Any]] = set()

    @property
    def membership(self) -> Membership:
        """The consumer groups."""
        return self.service.membership

    def owner(self, index: int) -> int:
        """The worker of a slice."""
        slices, workers = self.options.slices_per_range, self.options.workers
        return worker_of_slice(SliceIndex(index), slices=slices, workers=workers)

    def owners(self, indexes: Iterable[int]) -> list[int]:
        """The workers of these slices."""
        return sorted({self.owner(index) for index in indexes})

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

    def interruptible(self, task: asyncio.Task[Any]) -> bool:
        """Whether this task is within `polling`."""
        return task in self._polls

    def next_delivery(self) -> str:
        """A name for an answer that hands out events; no two are the same while a broker runs."""
        self._deliveries += 1
        return f"{self.options.worker:x}-{self.service.epoch:x}-{self._deliveries:x}"

    def everyone(self, args: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
        """The same arguments for every process of this broker."""
        return dict.fromkeys(self.processes, args)

    async def ask_all(
        self, op: str, args: Mapping[str, Any], *, timeout: float = 5.0
    ) -> dict[int, Any]:
        """All workers' results, or 503 if one of them cannot answer. For what changes nothing."""
        answers = await self.siblings.broadcast(op, self.everyone(args), timeout)
        for answer in answers.values():
            if isinstance(answer, BarcoError):
                raise as_not_ready(answer)
        return answers

    async def ask(self, worker: int, op: str, args: Mapping[str, Any], timeout: float = 5.0) -> Any:
        """One worker's result. For what changes nothing: no outcome of it is ever unknown."""
        try:
            return await self.siblings.call(worker, op, args, timeout)
        except BarcoError as error:
            raise as_not_ready(error) from None

    async def change_all(self, op: str, args: Mapping[str, Any], *, timeout: float = 10.0) -> None:
        """Change something on every worker. It can be sent again if not all have answered."""
        answers = await self.siblings.broadcast(op, self.everyone(args), timeout)
        failures = [answer for answer in answers.values() if isinstance(answer, BarcoError)]
        if not failures:
            return
        if len(failures) < len(answers) and failures[0].status >= 500:
            # Written on some: that is neither done nor "not written".
            raise OutcomeUnknownError("Not every worker has made the change: send it again.")
        raise failures[0]


def as_not_ready(error: BarcoError) -> BarcoError:
    """A read that got no answer has no outcome that could be unknown: it can be tried again."""
    if isinstance(error, (OutcomeUnknownError, PeerError)):
        return NotReadyError("The worker that owns the slice did not answer.")
    return error
