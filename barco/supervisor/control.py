"""The control plane of one broker: consumer registrations, and the view that every worker has.

A pure machine around the machine of the groups. A worker asks; if the answer changes the view, all
workers are sent the change, and the one that asked is answered when every live worker has seen it:
a poll that lands on any of them a moment later is known there.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.growing import needed_ranges
from barco.cluster.ring.routes import RouteTable, unpack_route
from barco.cluster.ring.target import Target, unpack_target
from barco.errors import BarcoError, NotReadyError, ProtocolError
from barco.limits import (
    CONSUMER_LAG_SECONDS,
    FRAME_BYTES_MAX,
    LOOK_SECONDS_MIN,
    TICK_SECONDS,
    VIEW_SECONDS_MAX,
)
from barco.model.ranges import HeldRange
from barco.protocol import messages
from barco.types import Ordinal

Sends = list[tuple[int, dict[str, Any]]]
"""Frames to send: (worker, message)."""

PEER = -1
"""In place of a worker: another broker waits to hear that all workers here have seen its news."""


class Machine(Protocol):
    """What is needed of `barco.cluster.groups.groups.Groups`."""

    @property
    def version(self) -> int:
        """Grows with every change."""

    def request(self, op: str, args: Mapping[str, Any], now: float) -> dict[str, Any]:
        """Apply one request of a worker; its result, or a BarcoError."""

    def tick(self, now: float) -> bool:
        """Expire what has been silent."""

    def deadline(self) -> float | None:
        """When `tick` has something to do."""

    def view(self, since: int = 0) -> dict[str, Any]:
        """What changed after a version; everything for 0."""


class Alone:
    """Stands where `barco.supervisor.cluster.Cluster` does for a single broker: the routes and the
    target of a ring of one. Only its own processes say anything of them, and all of it is true."""

    def __init__(self, control: "Control", cut: Cut) -> None:
        self._control = control
        self._workers: set[int] = set()
        self.routes = RouteTable(cut)
        self.target: Target | None = None
        """None: nobody has ever asked for other workers."""

    @property
    def informed(self) -> bool:
        """Whether what is needed is known: there is nobody else to ask."""
        return self.routes.is_covering

    def needed(self) -> list[HeldRange]:
        """The ranges for which this broker needs a process now."""
        return needed_ranges(self.target, self.routes, ((),), Ordinal(0))

    def worker_ready(self, worker: int) -> Sends:
        """A worker is there: it gets the whole view, the routes and the target."""
        self._workers.add(worker)
        told = {"brokers": [], "routes": [each.packed() for each in self.routes], "hints": []}
        frames: Sends = [(worker, {"type": messages.CLUSTER, "version": 0} | told)]
        return frames + self._tell_target([worker]) + self._control.worker_ready(worker)

    def worker_gone(self, worker: int) -> Sends:
        """A worker died."""
        self._workers.discard(worker)
        return self._control.worker_gone(worker)

    def receive(self, worker: int, message: Mapping[str, Any], now: float) -> Sends:
        """A frame of a worker. Routes they tell each other; here they are kept for who comes."""
        kind, cut = message.get("type"), self.routes.cut
        if kind == messages.LEADS:
            self.routes.merge(unpack_route(cut, message["route"]))
            return []
        if kind == messages.TARGET:
            self.target = unpack_target(cut, message["target"])
            return self._tell_target(self._workers)
        return self._control.receive(worker, message, now)

    def pause(self, now: float) -> float:
        """As `Control.pause`."""
        return self._control.pause(now)

    def look(self, now: float) -> Sends:
        """After each `pause`."""
        return self._control.tick(now)

    def tick(self, now: float) -> Sends:
        """About once a second."""
        return self.look(now)

    def _tell_target(self, workers: Iterable[int]) -> Sends:
        if self.target is None:
            return []
        packed = self.target.packed()
        return [(each, {"type": messages.TARGET, "target": packed}) for each in sorted(workers)]


class Waiting(Struct):
    """An answer that is held back until these workers have seen a version."""

    worker: int
    reply: dict[str, Any]
    version: int
    unseen: set[int]
    deadline: float
    receipt: int = 0
    """Of the other brokers, which are to have it as well; 0: there are none, or they have."""


class Control:
    """Routes requests of workers to the machine, and its views to the workers.

    receipts: in a cluster, numbers for changes of which the other brokers are told; `delivered` is
    called for each of them in the end.
    """

    def __init__(self, machine: Machine, receipts: Callable[[], int] = lambda: 0) -> None:
        self._machine = machine
        self._receipts = receipts
        self._sent: dict[int, int] = {}
        self._waiting: list[Waiting] = []
        self._seen_by: dict[int, int] = {}
        self._ticked = math.inf
        self._expires_at = -math.inf
        """Before, nobody is: this broker stood still, and what it was told waits to be read."""

    def worker_ready(self, worker: int) -> Sends:
        """A worker is there: it gets the whole view."""
        self._sent[worker] = 0
        return self._views([worker])

    def worker_gone(self, worker: int) -> Sends:
        """A worker died: nobody waits for it, and nobody answers it."""
        self._sent.pop(worker, None)
        self._seen_by.pop(worker, None)
        self._waiting = [item for item in self._waiting if item.worker != worker]
        for item in self._waiting:
            item.unseen.discard(worker)
        return self._answers()

    def receive(self, worker: int, message: Mapping[str, Any], now: float) -> Sends:
        """A "request" or "seen" frame of a worker."""
        if message.get("type") == messages.SEEN:
            return self._seen(worker, _number(message, "version"))
        identifier = _number(message, "id")
        op, args = message.get("op"), message.get("args", {})
        if not isinstance(op, str) or not isinstance(args, dict):
            raise ProtocolError("a request has an op and args")
        before = self._machine.version
        reply = {"type": messages.REPLY, "id": identifier}
        try:
            reply |= {"ok": True, "result": self._machine.request(op, args, now)}
        except BarcoError as error:
            reply |= _refusal(error)
        if self._machine.version == before:
            return [(worker, reply)]
        sends = self._views(self._sent)
        unseen = set(self._sent)
        deadline = now + VIEW_SECONDS_MAX
        waiting = Waiting(worker, reply, self._machine.version, unseen, deadline)
        waiting.receipt = self._receipts()
        self._waiting.append(waiting)
        return sends + self._answers()

    def refresh(self) -> Sends:
        """The machine has changed by something else than a request: tell all workers."""
        return self._views(self._sent)

    def when_seen(self, token: Mapping[str, Any], now: float) -> Sends:
        """Send (PEER, token) once all workers have seen the view as it is now, or time is over."""
        version = self._machine.version
        unseen = {worker for worker in self._sent if self._seen_by.get(worker, 0) < version}
        deadline = now + VIEW_SECONDS_MAX
        self._waiting.append(Waiting(PEER, dict(token), version, unseen, deadline))
        return self._answers()

    def delivered(self, receipt: int, missing: Sequence[int] = ()) -> Sends:
        """The other brokers have it, or were given the time for it and these are missing."""
        for item in self._waiting:
            if item.receipt == receipt:
                item.receipt = 0
                if missing and item.reply.get("result", {}).get("strict"):
                    item.reply = _not_heard(item, missing)
        return self._answers()

    def tick(self, now: float) -> Sends:
        """Expire consumers, and answers that waited for too long."""
        sends: Sends = []
        if now - self._ticked > CONSUMER_LAG_SECONDS:
            self._expires_at = now + CONSUMER_LAG_SECONDS
        self._ticked = now
        deadline = self._machine.deadline()
        expires = deadline is not None and max(deadline, self._expires_at) <= now
        if expires and self._machine.tick(now):
            sends += self._views(self._sent)
        late = [item for item in self._waiting if item.deadline <= now]
        self._waiting = [item for item in self._waiting if item.deadline > now]
        for item in late:
            sends.append((item.worker, item.reply if item.worker == PEER else _not_seen(item)))
        return sends

    def deadline(self) -> float | None:
        """When `tick` next has something to do."""
        times = [item.deadline for item in self._waiting]
        if (machine := self._machine.deadline()) is not None:
            times.append(max(machine, self._expires_at))
        return min(times, default=None)

    def pause(self, now: float) -> float:
        """For how long `tick` can wait, in seconds: whose session ends is not kept for the next
        full second. Many end at other times each: they are looked at together."""
        deadline = self.deadline()
        if deadline is None:
            return TICK_SECONDS
        return min(TICK_SECONDS, max(LOOK_SECONDS_MIN, deadline - now))

    def _views(self, workers: Iterable[int]) -> Sends:
        sends: Sends = []
        for worker in list(workers):
            view = self._machine.view(self._sent[worker])
            self._sent[worker] = self._machine.version
            sends += [(worker, part) for part in _parts(view)]
        return sends

    def _seen(self, worker: int, version: int) -> Sends:
        self._seen_by[worker] = version
        for item in self._waiting:
            if item.version <= version:
                item.unseen.discard(worker)
        return self._answers()

    def _answers(self) -> Sends:
        done = [item for item in self._waiting if not item.unseen and not item.receipt]
        self._waiting = [item for item in self._waiting if item.unseen or item.receipt]
        return [(item.worker, item.reply) for item in done]


def _parts(view: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A view as frames: one, or several where one would be over the limit of a frame.

    The first may replace everything; the others add groups to the same version.
    """
    groups: dict[str, Any] = view["groups"]
    parts: list[dict[str, Any]] = []
    part: dict[str, Any] = {}
    room = size_max = FRAME_BYTES_MAX // 4
    for name, group in groups.items():
        size = _size(group)
        if part and size > room:
            parts.append(part)
            part, room = {}, size_max
        part[name] = group
        room -= size
    parts.append(part)
    head = {key: value for key, value in view.items() if key != "groups"}
    frames = [{**head, "type": messages.VIEW, "groups": part} for part in parts]
    for later in frames[1:]:
        later.update(since=view["version"], removed=[])
    return frames


def _size(value: Any) -> int:
    """About how many bytes a value takes in a frame, generously."""
    if isinstance(value, dict):
        return 5 + sum(len(key) + 5 + _size(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return 5 + sum(_size(item) for item in value)
    return 9 if not isinstance(value, (str, bytes)) else 5 + 4 * len(value)


def _number(message: Mapping[str, Any], name: str) -> int:
    value = message.get(name)
    if not isinstance(value, int):
        raise ProtocolError(f"a {message.get('type')} frame has a number {name}")
    return value


def _refusal(error: BarcoError) -> dict[str, Any]:
    return {"ok": False, "status": error.status, "slug": error.slug, "detail": error.detail}


def _not_seen(item: Waiting) -> dict[str, Any]:
    detail = "Not every worker has taken up the change; one is being restarted. Try again."
    return {"type": messages.REPLY, "id": item.reply["id"]} | _refusal(NotReadyError(detail))


def _not_heard(item: Waiting, missing: Sequence[int]) -> dict[str, Any]:
    who = ", ".join(str(ordinal) for ordinal in missing)
    detail = f"Broker {who} has not heard of it yet, or is about to be taken to be down. Try again."
    return {"type": messages.REPLY, "id": item.reply["id"]} | _refusal(NotReadyError(detail))
