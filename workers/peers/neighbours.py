"""The brokers of the cluster, and who leads what, as the supervisor hears it by gossip.

Nothing here is needed for safety: a worker that hears of a leader late sends events to the wrong
process, which refuses them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from barco.model.options import WorkerOptions
from barco.model.replicas import Process
from barco.workers.peers.leaders import Leaders


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """One broker, as last heard."""

    ordinal: int
    disk_uuid: str
    session: int
    address: str
    ports: Mapping[str, int]
    workers: int
    version: str
    incarnation: int
    state: str
    """alive, suspect, down or left."""


class Neighbours:
    """All brokers that were heard of, this one included. Empty for a single broker."""

    def __init__(self, options: WorkerOptions, leaders: Leaders) -> None:
        replicas = options.replicas
        self._options = options
        self._leaders = leaders
        self._shards = {token_of_shard(options, shard): shard for shard in range(replicas.shards)}
        self.brokers: dict[int, Neighbour] = {}
        self.version = 0
        self.on_change: Callable[[], None] = lambda: None
        self.vouched: Callable[[int], bool] = lambda shard: False
        """Whether a process of this broker holds the shard and can be reached."""

    def host(self, ordinal: int) -> str:
        """The address or name of a broker that clients are told: what it says, by gossip; before it
        has been heard, that at which brokers call it."""
        options = self._options
        if options.ring_size == 1 or ordinal == options.ordinal:
            return options.advertise or options.bind
        heard = self.brokers.get(ordinal)
        return (heard and heard.address) or options.brokers[ordinal]

    def endpoint(self, process: Process) -> str:
        """ "host:port" of the shard endpoint of any process of the cluster, as clients call it."""
        ordinal, number = process
        if ordinal == self._options.process[0]:
            return self._options.shard_endpoint(process)
        return self._options.endpoint_at(self.host(ordinal), number)

    def apply(self, news: Mapping[str, Any]) -> None:
        """Take a "cluster" frame (see `barco.protocol.messages`)."""
        for broker in news["brokers"]:
            self.brokers[int(broker["ordinal"])] = Neighbour(**broker)
        for token, epoch, ordinal, *_ in news["leaders"]:
            shard = self._shards.get(token)
            # Of what is held here a process of this broker tells, as long as it is there: a word
            # from elsewhere, of an epoch that never comes, would not be outdone.
            if shard is not None and not self.vouched(shard):
                self._leaders.learn(shard, epoch, ordinal, hearsay=True)
        self.version = int(news["version"])
        self.on_change()


def token_of_shard(options: WorkerOptions, shard: int) -> int:
    """Where the run of slices of a shard of the ring begins."""
    replicas = options.replicas
    index, first = shard // options.workers, replicas.slices_of(shard).start
    return int(options.placement.token(index)) + first * options.placement.slice_width
