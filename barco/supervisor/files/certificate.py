"""The broker's certificate: read and checked by the supervisor, handed to workers as text."""

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
from barco.errors import ConfigError
from barco.limits import TLS_FILE_BYTES_MAX, TLS_WARN_DAYS

DAY_SECONDS = 86_400
TICKET_KEYS_BYTES = 80

log = logging.getLogger("barco.supervisor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was read, and found to be good."""

    certificate: str
    key: str = field(repr=False)
    client_ca: str
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
    certificate = _read("tls.certificate", tls.certificate)
    key = _read("tls.key", tls.key, secret=True)
    client_ca = _read("tls.client_ca", tls.client_ca) if tls.client_ca else ""
    try:
        from_s, until_s = tls_dates(certificate.encode(), key.encode(), client_ca.encode())
    except ValueError as error:
        raise ConfigError(f"tls.certificate = {tls.certificate!r}: {error}") from None
    found = Certificate(certificate=certificate, key=key, client_ca=client_ca, until_s=until_s)
    now_s = time.time() if now_s is None else now_s
    if now_s >= until_s:
        raise ConfigError(
            f"tls.certificate = {tls.certificate!r}: it, or one of its chain, has expired on"
            f" {found.until}: renew it"
        )
    if now_s < from_s:
        raise ConfigError(
            f"tls.certificate = {tls.certificate!r}: it is not valid yet: is the clock right?"
        )
    return found


class Certified:
    """The certificate of a running broker, and the keys of its tickets."""

    def __init__(self, config: Config) -> None:
        """ConfigError: there is something wrong with it."""
        self._per_second = config.tls.handshakes_per_second
        self._found = read_certificate(config)
        self._tickets = os.urandom(TICKET_KEYS_BYTES)

    def told(self) -> dict[str, Any]:
        """What a worker is told (`WorkerOptions.tls`); empty: there is no TLS."""
        found = self._found
        if found is None:
            return {}
        return {
            "certificate": found.certificate,
            "key": found.key,
            "client_ca": found.client_ca,
            "ticket_keys": self._tickets.hex(),
            "handshakes_per_second": self._per_second,
            "until": found.until_s,
        }

    @property
    def is_there(self) -> bool:
        """Whether ports for clients speak TLS."""
        return self._found is not None

    def renew(self, config: Config) -> str:
        """Take what the files have now; in words what came of it, "" if nothing did."""
        if self._found is None or not config.tls.certificate:
            return ""  # Ports begin or end to speak TLS with a start.
        before, self._found = self._found, read_certificate(config)
        assert self._found is not None, "a certificate is configured"
        self._per_second = config.tls.handshakes_per_second
        self._tickets = os.urandom(TICKET_KEYS_BYTES)
        found, tail = self._found, ""
        new = (
            "the certificate" if found.certificate == before.certificate else "another certificate"
        )
        if found.client_ca != before.client_ca:
            tail = ", and clients need " + (
                "one of another client_ca" if found.client_ca else "none any more"
            )
        return f"{new} counts for new connections, until {found.until}{tail}"

    async def watch(self, tell: Callable[[dict[str, Any]], None]) -> None:
        """Once a day: say when the certificate is about to end, and take other keys of tickets."""
        while self._found is not None:
            if said := expiry(self._found.until_s, time.time()):
                log.warning("%s", said)
            await asyncio.sleep(DAY_SECONDS)
            self._tickets = os.urandom(TICKET_KEYS_BYTES)
            tell(self.told())


def expiry(until_s: int, now_s: float) -> str:
    """What is to be said of a certificate's end; "": it is far away."""
    days = int((until_s - now_s) // DAY_SECONDS)
    if now_s >= until_s:
        return "the TLS certificate has expired: clients turn away; renew it, and send SIGHUP"
    if days < TLS_WARN_DAYS:
        return f"the TLS certificate expires in {days} days: renew it, and send SIGHUP"
    return ""


def _read(name: str, path: str, *, secret: bool = False) -> str:
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
