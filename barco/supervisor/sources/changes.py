"""A configuration that is read again while its broker runs: what would change. Pure."""

from msgspec import Struct

from barco.config import Config, Key, all_keys
from barco.errors import ConfigError

BROKERS = "cluster.brokers"


class Changes(Struct, frozen=True, kw_only=True):
    """What a file says that the broker does not run with."""

    added: bool
    """Whether brokers are listed that were not before: they are wished for, now."""
    later: tuple[str, ...]
    """What counts at the next start, by its key."""


def changes(running: Config, listed: tuple[str, ...], found: Config) -> Changes:
    """What `found` changes for a broker that runs with another configuration.

    listed: the brokers of the last file that was taken up. ConfigError for one that lists fewer.
    """
    brokers = found.cluster.brokers
    if len(brokers) < len(listed):
        raise ConfigError(fewer(f"{BROKERS} lists", len(brokers), len(listed)))
    moved = [
        f"{BROKERS} (broker {ordinal} at {new})"
        for ordinal, (old, new) in enumerate(zip(running.cluster.brokers, brokers, strict=False))
        if old != new
    ]
    keys = [
        key.dotted
        for key in all_keys()
        if key.dotted != BROKERS and _value(running, key) != _value(found, key)
        if not _read_anew(key, running, found)
    ]
    return Changes(added=len(brokers) > len(listed), later=(*moved, *keys))


def _read_anew(key: Key, running: Config, found: Config) -> bool:
    """Whether it names what a reload reads: the log, a certificate in the place of another."""
    if key.section == "log":
        return True
    if key.section == "tls":
        return bool(running.tls.certificate and found.tls.certificate)
    named = key.dotted in ("cluster.ca", "cluster.certificate", "cluster.key")
    return named and bool(running.cluster.ca and found.cluster.ca)


def fewer(says: str, count: int, before: int) -> str:
    """Why fewer brokers are no wish. Whoever lets a ring shrink by its list begins here."""
    return (
        f"{says} {count} brokers, and {before} before: that takes nobody out of a cluster. Copy"
        " what they hold (barco drain), say how many stay (barco scale), and shorten it when they"
        " are gone"
    )


def _value(config: Config, key: Key) -> object:
    return getattr(getattr(config, key.section), key.name)
