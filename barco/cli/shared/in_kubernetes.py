"""`barco serve` in a pod: what the StatefulSet says, before the broker runs and while it does."""

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from barco import config as configuration
from barco.cli.shared.joining import joining
from barco.cli.shared.known import ask_others
from barco.config import Config
from barco.errors import NotReadyError
from barco.kubernetes.api import Api
from barco.kubernetes.pods import FIRST, Pod, address_of, addresses, placed, pod_of
from barco.kubernetes.source import ReplicaCount
from barco.supervisor import datadir, machine
from barco.supervisor.files.addresses import store_addresses, stored_addresses
from barco.supervisor.sources.plan import Wish

log = logging.getLogger("barco.kubernetes")

START_SECONDS = 300.0
"""For the API server, the others' addresses, and a cluster to join. Then the pod's turn is over,
and whoever looks at it sees that it does not get on."""

LOOK_SECONDS = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodBroker:
    """A broker that is a pod, with all that it has to know before it starts."""

    pod: Pod
    api: Api
    brokers: Sequence[str]
    data_dir: Path

    def placed(self, config: Config) -> Config:
        """A configuration as this pod's broker has it."""
        return placed(config, self.pod, self.brokers)

    async def follow(self, wish: Wish) -> None:
        """More replicas become the cluster's target, for as long as the broker runs."""
        store_addresses(self.data_dir, self.brokers)
        await ReplicaCount(wish).run(await self.api.changes())


def begin(where: str, config: Config, data_dir: Path, *, insecure_allow_open: bool) -> PodBroker:
    """Who this pod is; its data directory is formatted if it joins a cluster that is there.

    where: NAMESPACE/POD. A BarcoError if it can not be one, or if nobody answers for too long.
    """
    pod = pod_of(where)
    api = Api(pod)
    found = _waited(api.read)
    remembered = stored_addresses(data_dir)
    brokers = _waited(lambda: addresses(pod, found.service, address_of, remembered))
    broker = PodBroker(pod, api, brokers, data_dir)
    if pod.ordinal >= FIRST and datadir.load(data_dir) is None:
        _join(machine.check(broker.placed(config), insecure_allow_open)[0], data_dir)
    return broker


def _join(config: Config, path: Path) -> None:
    """What `barco format --join` does, when somebody is there."""
    lock = datadir.claim(path)
    try:
        _waited(lambda: _somebody(config))
        joins = joining(config)
        identity = datadir.format_data_dir(
            path,
            workers=joins.cluster.workers,
            slices_per_range=joins.cluster.slices_per_range,
            ordinal=config.broker.ordinal,
            cluster_uuid=configuration.cluster_uuid(config),
            ring_size=joins.cluster.ring_size,
            table=joins.table,
        )
    finally:
        os.close(lock)
    log.info("data directory formatted, to join", extra={"ordinal": identity.ordinal})


def _somebody(config: Config) -> bool:
    if next(ask_others(config), None) is None:
        raise NotReadyError("no broker of the cluster that is to be joined answers")
    return True


def _waited(ask: Callable[[], T]) -> T:
    end, said = time.monotonic() + START_SECONDS, ""
    while True:
        try:
            return ask()
        except NotReadyError as error:
            if time.monotonic() > end:
                raise
            if error.detail != said:
                said = error.detail
                log.warning("waits: %s", said)
        time.sleep(LOOK_SECONDS)
