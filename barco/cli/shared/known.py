"""What other brokers of a cluster know of it and of this one, before it has a data directory."""

import json
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import barco
from barco import config as configuration
from barco.cli.shared.routes import sound_cut
from barco.cli.shared.shown import own_access, own_files
from barco.client.wire.access import Access, Tls, own_in
from barco.client.wire.blocking import Link
from barco.client.wire.discovery import join_endpoint
from barco.client.wire.http1 import HttpError, Request
from barco.config import Config
from barco.errors import BarcoError, ConfigError, UnauthorizedError
from barco.model.options import cluster_mark

ASK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCluster:
    """A cluster, as one of its brokers tells it to anybody."""

    endpoint: str
    """Of the broker that answered."""
    ring_size: int
    """Brokers at format time, as are workers and slices: the cut of the ring."""
    workers: int
    slices_per_range: int
    disks: Mapping[int, str]
    """By ordinal, of the brokers whose disk it knows."""


def known_disk(config: Config) -> str | None:
    """The disk_uuid with which other brokers of the cluster know this one; None if nobody does.

    Whoever does not answer is not waited for: the replicas themselves refuse a disk that they do
    not know, this only says so earlier. ConfigError: they are of another cluster, or of one that
    was formatted with another number of brokers, which a broker without a disk has to join.
    """
    listed, other = len(config.cluster.brokers), None
    for told in ask_others(config):
        if (disk := told.disks.get(config.broker.ordinal)) is not None:
            return disk
        other = other or (told if told.ring_size != listed else None)
    if other is not None:
        raise ConfigError(
            f"the cluster at {other.endpoint} was formatted with {other.ring_size} brokers, and"
            f" cluster.brokers lists {listed}: a broker that comes later joins it with barco format"
            " --join, then barco serve"
        )
    return None


def ask_others(config: Config) -> Iterator[KnownCluster]:
    """What each other broker of the list says that answers, one after the other.

    ConfigError: it is of another cluster.
    """
    for answer in answers(config):
        if answer.told is None:
            continue
        if not answer.same_cluster:
            raise ConfigError(
                f"broker {answer.ordinal} at {answer.endpoint} is of another cluster than this one:"
                " correct cluster.uuid or cluster.brokers"
            )
        yield _known(answer.endpoint, answer.told)


def others_went_on(config: Config) -> list[str]:
    """The other brokers of this cluster that run and were not just restored, in words.

    Who does not answer is not waited for: where one of those remembers more, the replicas find it.
    But who is there and only does not say what it is to whom asks like this (a token, a
    certificate) went on, unless /ready, which everybody may ask, says that it was restored.
    """
    found = []
    for each in answers(config):
        name = f"broker {each.ordinal} at {each.endpoint}"
        if each.told is not None:
            if each.same_cluster and not each.told.get("restored"):
                found.append(name)
        elif (ready := _ready(config, each.endpoint)) is not None and not ready.get("restored"):
            found.append(f"{name} (which does not say of which cluster it is: {each.why})")
    return found


def _ready(config: Config, endpoint: str) -> Mapping[str, Any] | None:
    """What a broker answers to whom it does not know; None: nobody is there. Nothing secret is
    shown for it, so no certificate is looked at."""
    found: Mapping[str, Any] | None = None
    unchecked = _unchecked(config)
    for sealed in (True, False) if config.tls.certificate else (False, True):
        access = Access((endpoint,), tls=unchecked if sealed else None)
        link = Link(access, endpoint, timeout_s=ASK_SECONDS)
        try:
            answer = link.exchange(Request("GET", "/ready"))
            told = json.loads(answer.body)
            if answer.status in (200, 503) and isinstance(told, dict):
                return told
            found = {}
        except ssl.SSLEOFError:
            return None
        except (ssl.SSLError, ValueError):
            found = {}  # Somebody, who speaks otherwise.
        except OSError as error:
            if not isinstance(error.__cause__, HttpError):
                return None
            found = {}
        finally:
            link.close()
    return found


def _unchecked(config: Config) -> Tls:
    """It takes whoever answers; shown is this broker's own certificate, where it can be read."""
    try:
        return Tls(own=own_in(*own_files(config)), checked=False)
    except (OSError, ValueError):
        return Tls(checked=False)


def clock_ahead_s(config: Config, endpoint: str) -> float | None:
    """How far a broker's clock is before this machine's, in seconds, with the second that its
    answer's Date leaves open; None: nobody tells. No certificate is looked at: with a clock that is
    wrong none is believed."""
    tls = _unchecked(config) if config.tls.certificate else None
    link = Link(Access((endpoint,), tls=tls), endpoint, timeout_s=ASK_SECONDS)
    try:
        answer = link.exchange(Request("GET", "/ready"))
        return parsedate_to_datetime(answer.headers.get("date", "")).timestamp() - time.time()
    except (OSError, ValueError, TypeError):
        return None
    finally:
        link.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of asking another broker of the list."""

    ordinal: int
    endpoint: str
    told: Mapping[str, Any] | None
    """None: it does not answer, or does not say."""
    same_cluster: bool
    why: str = ""
    """It does not, in words."""
    asks_for_token: bool = False


def answers(config: Config) -> Iterator[Answer]:
    """Of each other broker of the list, one after the other."""
    mark = cluster_mark(configuration.cluster_uuid(config))
    for ordinal, host in enumerate(config.cluster.brokers):
        if ordinal == config.broker.ordinal or len(config.cluster.brokers) == 1:
            continue
        endpoint = join_endpoint(host, config.ports.discovery)
        try:
            with barco.Admin(own_access(config, endpoint), timeout_s=ASK_SECONDS) as admin:
                told = admin.brokers()
        except BarcoError as error:
            yield Answer(
                ordinal=ordinal,
                endpoint=endpoint,
                told=None,
                same_cluster=False,
                why=error.detail,
                asks_for_token=isinstance(error, UnauthorizedError),
            )
            continue
        same = told.get("cluster") == mark
        yield Answer(ordinal=ordinal, endpoint=endpoint, told=told, same_cluster=same)


def _known(endpoint: str, told: Mapping[str, Any]) -> KnownCluster:
    try:
        cut = sound_cut(told["length"], told["slicesPerRange"])
        return KnownCluster(
            endpoint=endpoint,
            ring_size=cut.brokers,
            workers=int(told["workers"]),
            slices_per_range=cut.slices_per_range,
            disks={
                int(each["ordinal"]): str(each["diskUuid"])
                for each in told.get("brokers", [])
                if each.get("diskUuid")
            },
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{endpoint} is no broker of this version: {error!r}") from None
