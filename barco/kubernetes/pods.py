"""A pod of a StatefulSet as a broker: its ordinal, the others' names, and their addresses."""

import hashlib
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barco.config import Config
from barco.errors import ConfigError, NotReadyError

FIRST = 3
"""Brokers that a cluster is formatted with; those that come later join them."""

Resolve = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """Which pod of which StatefulSet this broker is."""

    namespace: str
    owner: str
    """The StatefulSet."""
    ordinal: int

    @property
    def uuid(self) -> str:
        """Of the cluster that the StatefulSet is: addresses may change, its name does not."""
        name = f"barco kubernetes {self.namespace}/{self.owner}"
        return hashlib.sha256(name.encode()).hexdigest()[:32]

    def name_of(self, ordinal: int, service: str) -> str:
        """A broker's name in DNS, as the headless service gives it."""
        return f"{self.owner}-{ordinal}.{service}.{self.namespace}.svc"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulSet:
    """What a broker reads of its StatefulSet."""

    replicas: int
    service: str
    """The headless one (spec.serviceName)."""


def pod_of(text: str, host_name: str | None = None) -> Pod:
    """NAMESPACE/POD, or NAMESPACE where the host name is the pod's. ConfigError for no such pod."""
    namespace, _, name = text.partition("/")
    name = name or (host_name or socket.gethostname()).split(".")[0]
    label = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
    match = re.fullmatch(rf"({label})-(0|[1-9]\d{{0,4}})", name)
    if match is None or not re.fullmatch(label, namespace):
        raise ConfigError(
            f"--kubernetes {text}: pass NAMESPACE/POD, where the pod is one of a StatefulSet and so"
            f" ends in its ordinal, as {name.rstrip('-') or 'barco'}-0 does; with hostNetwork the"
            " host name is the node's, so pass metadata.name"
        )
    return Pod(namespace=namespace, owner=match[1], ordinal=int(match[2]))


def address_of(name: str) -> str | None:
    """By DNS, IPv4 first; None of a pod that has none yet."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


def addresses(
    pod: Pod, service: str, resolve: Resolve, remembered: Sequence[str]
) -> tuple[str, ...]:
    """Of the brokers that this one has to list: the first ones or, if it came later, all up to
    itself. NotReadyError names the pod that nobody has an address for yet.

    remembered: where they were at the last start. A pod whose node is gone has no address, and is
    where it was when it comes back: its volume is on that node.
    """
    found = []
    for ordinal in range(max(FIRST, pod.ordinal + 1)):
        name = pod.name_of(ordinal, service)
        address = resolve(name)
        if address is None and ordinal != pod.ordinal and ordinal < len(remembered):
            address = remembered[ordinal]
        if address is None:
            raise NotReadyError(
                f"{name} has no address yet: the pod is not scheduled, or the Service {service} is"
                " not headless or does not publish addresses of pods that are not ready"
            )
        found.append(address)
    return tuple(found)


def placed(config: Config, pod: Pod, brokers: Sequence[str]) -> Config:
    """The configuration of the pod's broker. ConfigError if it says otherwise."""
    if config.cluster.brokers or config.broker.ordinal not in (-1, pod.ordinal):
        raise ConfigError(
            "--kubernetes: cluster.brokers and broker.ordinal follow from the StatefulSet: take"
            " them out of the configuration"
        )
    uuid = config.cluster.uuid or pod.uuid
    config = config.override("cluster", brokers=tuple(brokers), uuid=uuid)
    return config.override("broker", ordinal=pod.ordinal)
