"""The brokers of the cluster, and who leads what, as the supervisor hears it by gossip.

Nothing here is needed for safety: a worker that hears of a leader late sends events to the wrong
process, which refuses them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import unpack_route
from barco.model.options import WorkerOptions
from barco.model.ranges import from_plain
from barco.model.replicas import Process
from barco.workers.peers.leaders import Leaders
from barco.workers.peers.links import Addresses
from barco.workers.peers.ranges import RingRanges

UP = ("alive", "suspect")
"""States in which what a broker's processes have said still counts."""


class Neighbour(Struct, frozen=True, kw_only=True):
    """One broker, as last heard."""

    ordinal: int
    disk_uuid: str
    session: int
    address: str
    """The address or name that clients are told."""
    host: str
    """The address at which other brokers call it."""
    ports: Mapping[str, int]
    workers: int
    version: str
    incarnation: int
    state: str
    """alive, suspect, down or left."""
    processes: Sequence[Sequence[int]] = ()
    """(number of a process, token of the range that it holds, its session or 0 while it is not
    ready)."""

    @property
    def up(self) -> bool:
        """Not known to have gone."""
        return self.state in UP


class Neighbours:
    """All brokers that were heard of, this one included. Empty for a single broker."""

    def __init__(
        self,
        options: WorkerOptions,
        ranges: RingRanges,
        leaders: Leaders,
        wall_us: Callable[[], int],
    ) -> None:
        """`wall_us`: to be shown, no more."""
        self._options = options
        self._cut = Cut(options.ring_size, options.slices_per_range)
        self._ranges = ranges
        self._leaders = leaders
        self._endpoints = options.shard_endpoints
        self.addresses = Addresses(options)
        """Where other brokers are called by this one."""
        self.brokers: dict[int, Neighbour] = {}
        self.changed_us: dict[int, int] = {}
        """When a broker came or went last, of those that were seen to do so."""
        self._wall_us = wall_us
        self.version = 0
        self.on_change: Callable[[], None] = lambda: None
        """Called when clients may have to call a process elsewhere than before."""
        self.on_own: Callable[[], None] = lambda: None
        """Called when this broker has other processes than before."""

    def host(self, ordinal: int) -> str:
        """The address or name of a broker that clients are told: what it says, by gossip; before it
        has been heard, that at which brokers call it."""
        options = self._options
        if options.ring_size == 1 or ordinal == options.ordinal:
            return options.advertise or options.bind
        heard = self.brokers.get(ordinal)
        return (heard and heard.address) or self.addresses.host(ordinal) or ""

    def endpoint(self, process: Process) -> str:
        """ "host:port" of the shard endpoint of any process of the cluster, as clients call it."""
        ordinal, number = process
        if ordinal == self._options.process[0]:
            return self._endpoints[number]
        return self._options.endpoint_at(self.host(ordinal), number)

    @property
    def ordinals(self) -> list[int]:
        """Of all brokers: those of the first cut, and who came later and was heard of."""
        first = range(self._options.ring_size)
        return sorted({*first, *self.brokers, self._options.process[0]})

    def position(self, ordinal: int) -> int:
        """The token at which the range of a broker begins, in a ring of any size."""
        return int(self._cut.token(self._cut.position(ordinal)))

    @property
    def endpoints(self) -> list[str]:
        """Of this broker's processes, by number."""
        return [self._endpoints[number] for number in sorted(self._endpoints)]

    def apply(self, news: Mapping[str, Any]) -> None:
        """Take a "cluster" frame (see `barco.protocol.messages`)."""
        renumbered = renamed = False
        for broker in news["brokers"]:
            heard = Neighbour(**broker)
            before = self.brokers.get(heard.ordinal)
            if before is not None and (before.state in UP) != (heard.state in UP):
                self.changed_us[heard.ordinal] = self._wall_us()
            self.brokers[heard.ordinal] = heard
            named = heard.address, heard.host
            renamed |= before is None or (before.address, before.host) != named
            self.addresses.tell(heard.ordinal, heard.host)
            renumbered |= self._ranges.tell(
                heard.ordinal, heard.processes, heard.disk_uuid, up=heard.state in UP
            )
        cut = self._ranges.cut
        routes, hints = (
            [unpack_route(cut, packed) for packed in news[name]] for name in ("routes", "hints")
        )
        self._leaders.hear(routes, hints)
        if renumbered:
            self._leaders.renumber()
        self.version = int(news["version"])
        if renamed or renumbered:  # Each is a call of the core for each range.
            self.on_change()

    def apply_own(self, news: Mapping[str, Any]) -> None:
        """Take a "processes" frame: this broker runs others than before."""
        self._endpoints = {int(number): text for number, text in news["endpoints"].items()}
        table = from_plain(news["processes"])
        sessions = {int(number): int(each) for number, each in news["sessions"].items()}
        self._ranges.tell_own(table, sessions)
        self.on_own()
