"""Where a broker listens, from where it calls others, and what it tells clients: three addresses.

They are the same on a plain machine. They differ where a broker listens on every address, or where
network address translation stands between it and its clients.
"""

import ipaddress
import re
import socket
from collections.abc import Sequence

from barco.errors import ConfigError
from barco.limits import HOSTS_MAX

_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*", re.ASCII)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach a listener at this address."""
    return ipaddress.ip_address(address).is_loopback


def is_every(address: str) -> bool:
    """Whether a listener there listens on every address: 0.0.0.0 or ::."""
    return ipaddress.ip_address(address).is_unspecified


def bracketed(host: str) -> str:
    """As it stands before a port."""
    return f"[{host}]" if ":" in host else host


def check_address(address: str, dotted: str) -> None:
    """ConfigError for what is no IP address."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise ConfigError(f"{dotted} = {address!r}: must be an IP address") from None


def check_advertise(host: str) -> None:
    """ConfigError for what clients could not call."""
    try:
        fits = not ipaddress.ip_address(host).is_unspecified and "%" not in host
    except ValueError:
        # Four numbers that are no address are no name either.
        fits = _NAME.fullmatch(host) is not None and not host.rpartition(".")[2].isdigit()
    if host and not fits:
        raise ConfigError(
            f"broker.advertise = {host!r}: must be an IP address or a host name by which clients"
            " reach this broker, without a port, and not that of every address"
        )


def bind_in_cluster(bind: str, advertise: str, mine: str, unset: str) -> str:
    """Where a broker listens that the others know at `mine`; `unset`: the key's default.

    Another address than that is a slip, unless it is every address, or `advertise` says that there
    are several on purpose.
    """
    if bind in (mine, unset):
        return mine
    if not advertise and not is_every(bind):
        raise ConfigError(
            f"broker.bind = {bind!r}: cluster.brokers has {mine!r} for this ordinal, which is where"
            " the other brokers look for this one; if they get here all the same (0.0.0.0, or"
            " address translation), say with broker.advertise what clients are to be told"
        )
    if (":" in bind) != (":" in mine):
        raise ConfigError(
            f"broker.bind = {bind!r} and cluster.brokers ({mine!r} for this ordinal) have to be of"
            " one family, IPv4 or IPv6"
        )
    return bind


def advertised(bind: str, advertise: str, mine: str) -> str:
    """What clients and other brokers are told; `mine`: the entry in cluster.brokers, if any."""
    told = advertise or (mine if is_every(bind) else bind)
    if not told:
        raise ConfigError(
            f"broker.bind = {bind!r} is every address of this machine, which tells clients none:"
            " set broker.advertise (or --advertise) to the address or the name that they call"
        )
    return told


def source(bind: str, mine: str) -> str:
    """From where other brokers are called. They know this one by its entry in cluster.brokers; a
    machine that has not got that address is behind a translation that puts it in."""
    if not mine or bind == mine:
        return bind
    family = socket.AF_INET6 if ":" in mine else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((mine, 0))
        except OSError:
            return bind
    return mine


def check_hosts(hosts: Sequence[str]) -> None:
    """ConfigError for what can not be in clients.hosts."""
    rule = "must be a host name without port, an origin such as https://a.example:8443, or *"
    if len(hosts) > HOSTS_MAX:
        raise ConfigError(f"clients.hosts = {hosts!r}: {HOSTS_MAX} at most")
    for host in hosts:
        named = re.fullmatch(r"\*|(https?://)?[\w.-]{1,253}(?(1)(:\d{1,5})?)", host, re.ASCII)
        if named is None:
            raise ConfigError(f"clients.hosts = {host!r}: {rule}")
