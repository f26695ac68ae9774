"""The broker's certificates, for clients and for other brokers: read and checked by the supervisor,
handed to workers as text."""

import asyncio
import logging
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from barco._native import tls_dates
from barco.config import Config
from barco.config import cluster_uuid as uuid_of
from barco.errors import ConfigError
from barco.limits import TLS_FILE_BYTES_MAX, TLS_WARN_DAYS
from barco.mutual import SCHEME, Mutual, tried
from barco.supervisor.files.credentials import file_named

DAY_SECONDS = 86_400
TICKET_KEYS_BYTES = 80

BOTH_WAYS = (
    "brokers without TLS are let in, as cluster.tls_required = false says: when all have"
    " cluster.ca, leave it out and restart one after the other"
)

log = logging.getLogger("barco.supervisor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was read, and found to be good."""

    certificate: str
    key: str = field(repr=False)
    ca: str
    """Of whom the other end has to have one; empty: it needs none."""
    until_s: int
    """Seconds since 1970: the first of its chain ends."""

    @property
    def until(self) -> str:
        """When it ends, in words."""
        return datetime.fromtimestamp(self.until_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def read_certificate(config: Config, now_s: float | None = None) -> Certificate | None:
    """As configured; None: there is none. ConfigError says what to do. now_s: since 1970."""
    tls = config.tls
    if not (tls.certificate or tls.key or tls.client_ca):
        return None
    for name, value in (("certificate", tls.certificate), ("key", tls.key)):
        if not value:
            raise ConfigError(f"tls.{name} is not set: TLS needs a certificate and its key")
    return _checked("tls", tls.certificate, tls.key, "client_ca", tls.client_ca, now_s)


def read_mutual(config: Config, now_s: float | None = None) -> Certificate | None:
    """As configured for other brokers; None: they speak plain, or there are none. ConfigError as
    above, and where they would not believe it."""
    cluster = config.cluster
    if len(cluster.brokers) <= 1 or not (cluster.ca or cluster.certificate or cluster.key):
        return None
    for name in ("ca", "certificate", "key"):
        if not getattr(cluster, name):
            raise ConfigError(
                f"cluster.{name} is not set: TLS between brokers needs cluster.ca,"
                " cluster.certificate and cluster.key (barco certs init makes the files)"
            )
    found = _checked("cluster", cluster.certificate, cluster.key, "ca", cluster.ca, now_s)
    where = f"cluster.certificate = {cluster.certificate!r}"
    try:
        says = tried(found.certificate, found.key, found.ca)
    except ValueError as error:
        raise ConfigError(
            f"{where}: other brokers with this cluster.ca would refuse it: {error}"
        ) from None
    wanted = f"{SCHEME}{uuid_of(config)}/{config.broker.ordinal}"
    if says != wanted:
        raise ConfigError(
            f"{where}: its URI is {says or 'none'}, and has to be {wanted}:"
            f" barco certs issue {config.broker.ordinal} makes one"
        )
    return found


def _checked(
    section: str, certificate: str, key: str, name: str, ca: str, now_s: float | None
) -> Certificate:
    """name: of the key that names the file of the CA."""
    where = f"{section}.certificate = {certificate!r}"
    texts = {
        "certificate": _read(f"{section}.certificate", certificate),
        "key": _read(f"{section}.key", key, secret=True),
        "ca": _read(f"{section}.{name}", ca) if ca else "",
    }
    try:
        from_s, until_s = tls_dates(*(text.encode() for text in texts.values()))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    found = Certificate(**texts, until_s=until_s)
    now_s = time.time() if now_s is None else now_s
    if now_s >= until_s:
        raise ConfigError(
            f"{where}: it, or one of its chain, has expired on {found.until}: renew it"
        )
    if now_s < from_s:
        raise ConfigError(f"{where}: it is not valid yet: is the clock right?")
    return found


class Certified:
    """The certificates of a running broker, and the keys of its clients' tickets."""

    def __init__(self, config: Config, cluster_uuid: str = "") -> None:
        """ConfigError: there is something wrong with one."""
        self._per_second = config.tls.handshakes_per_second
        self._kernel = config.tls.kernel == "auto"
        self._found = read_certificate(config)
        self._tickets = os.urandom(TICKET_KEYS_BYTES)
        self._between = read_mutual(config)
        self._required = config.cluster.tls_required
        self.mutual = Mutual(cluster_uuid, self._mutual())

    def told(self) -> dict[str, Any]:
        """What a worker is told (`WorkerOptions.tls`); empty: there is no TLS."""
        found, told = self._found, dict[str, Any]()
        if found is not None:
            told["clients"] = {
                "certificate": found.certificate,
                "key": found.key,
                "client_ca": found.ca,
                "ticket_keys": self._tickets.hex(),
                "handshakes_per_second": self._per_second,
                "kernel": self._kernel,
                "until": found.until_s,
            }
        if self._between is not None:
            told["brokers"] = self._mutual()
        return told

    @property
    def is_there(self) -> bool:
        """Whether ports for clients speak TLS."""
        return self._found is not None

    def renew(self, config: Config) -> str:
        """Take what the files have now; in words what came of it, "" if nothing did. ConfigError:
        nothing is taken."""
        # Ports begin or end to speak TLS with a start.
        clients = self._found is not None and bool(config.tls.certificate)
        brokers = self._between is not None and bool(config.cluster.ca)
        found = read_certificate(config) if clients else None
        between = read_mutual(config) if brokers else None
        parts = []
        if found is not None:
            parts.append(_counts("certificate", self._found, found, "clients", "client_ca"))
            self._found = found
            self._per_second = config.tls.handshakes_per_second
            self._kernel = config.tls.kernel == "auto"
            self._tickets = os.urandom(TICKET_KEYS_BYTES)
        if between is not None:
            what = "certificate between brokers"
            parts.append(_counts(what, self._between, between, "brokers", "cluster.ca"))
            self._between = between
            self.mutual.take(self._mutual())
        return "; ".join(parts)

    def _mutual(self) -> dict[str, Any]:
        """As `Mutual` takes it. What is required changes with a start: connections stand."""
        found = self._between
        if found is None:
            return {}
        texts = {"certificate": found.certificate, "key": found.key, "ca": found.ca}
        return texts | {"until": found.until_s, "required": self._required}

    async def watch(self, tell: Callable[[dict[str, Any]], None]) -> None:
        """Once a day: say when a certificate is about to end, and take other keys of tickets."""
        while self._found is not None or self._between is not None:
            if self._between is not None and not self._required:
                log.warning("%s", BOTH_WAYS)
            for found, what, who in (
                (self._found, "TLS certificate", "clients"),
                (self._between, "TLS certificate between brokers", "the others"),
            ):
                if found is not None and (said := expiry(found.until_s, time.time(), what, who)):
                    log.warning("%s", said)
            await asyncio.sleep(DAY_SECONDS)
            self._tickets = os.urandom(TICKET_KEYS_BYTES)
            tell(self.told())


def _counts(what: str, before: Certificate | None, found: Certificate, others: str, ca: str) -> str:
    """others: who connect, with a certificate of `ca`, the name of a setting."""
    assert before is not None, "TLS begins with a start"
    new, tail = "the" if found.certificate == before.certificate else "another", ""
    if found.ca != before.ca:
        tail = f", and {others} need " + (f"one of another {ca}" if found.ca else "none any more")
    return f"{new} {what} counts for new connections, until {found.until}{tail}"


def expiry(until_s: int, now_s: float, what: str = "TLS certificate", who: str = "clients") -> str:
    """What is to be said of a certificate's end; "": it is far away. who: cares for it."""
    days = int((until_s - now_s) // DAY_SECONDS)
    if now_s >= until_s:
        return f"the {what} has expired: {who} turn away; renew it, and send SIGHUP"
    if days < TLS_WARN_DAYS:
        return f"the {what} expires in {days} days: renew it, and send SIGHUP"
    return ""


def _read(name: str, path: str, *, secret: bool = False) -> str:
    path = str(file_named(path))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{name}: cannot read {path}: {why}") from None
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise ConfigError(f"{name}: {path} is no file")
        if secret and mode & 0o137:
            raise ConfigError(
                f"{name}: {path} has mode {stat.S_IMODE(mode):04o}, and has to be one that only its"
                f" owner can use, or its group read: chmod 600 {path}"
            )
        text = os.read(fd, TLS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {path}: {error.strerror}") from None
    finally:
        os.close(fd)
    if not text:  # Of client_ca it would mean that nobody needs a certificate.
        raise ConfigError(f"{name}: {path} is empty")
    if len(text) > TLS_FILE_BYTES_MAX:
        raise ConfigError(f"{name}: {path} has more than {TLS_FILE_BYTES_MAX >> 10} KiB")
    try:
        return text.decode("ascii")
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: {path} is not PEM, which is plain text") from None
