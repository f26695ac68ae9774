"""What the other brokers of a cluster know of this one, before it has a data directory."""

import barco
from barco import config as configuration
from barco.client.wire.discovery import join_endpoint
from barco.config import Config
from barco.errors import BarcoError, ConfigError
from barco.model.options import cluster_mark

ASK_SECONDS = 1.0


def known_disk(config: Config) -> str | None:
    """The disk_uuid with which other brokers of the cluster know this one; None if nobody does.

    Whoever does not answer is not waited for: the replicas themselves refuse a disk that they do
    not know, this only says so earlier.
    """
    ordinal, uuid = config.broker.ordinal, configuration.cluster_uuid(config)
    for other, host in enumerate(config.cluster.brokers):
        if other == ordinal or len(config.cluster.brokers) == 1:
            continue
        endpoint = join_endpoint(host, config.ports.discovery)
        try:
            with barco.Admin(endpoint, timeout_s=ASK_SECONDS) as admin:
                told = admin.brokers()
        except BarcoError:
            continue
        if told.get("cluster") != cluster_mark(uuid):
            raise ConfigError(
                f"broker {other} at {endpoint} is of another cluster than this one: correct"
                " cluster.uuid or cluster.brokers"
            )
        for broker in told.get("brokers", []):
            if broker.get("ordinal") == ordinal and broker.get("diskUuid"):
                return str(broker["diskUuid"])
    return None
