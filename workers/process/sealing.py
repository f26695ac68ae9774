"""TLS of a worker: its certificates, now and after a reload, and what fails, told once a minute."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from barco import limits
from barco._native import Reactor, tls_kernel
from barco.mutual import Mutual
from barco.workers.operations.service import ShardService

TELL_SECONDS = 60.0
FAILURES = ("failed", "late", "refused")

log = logging.getLogger("barco.worker")


class Sealing:
    """What seals the connections of clients, and of other brokers, if anything does."""

    def __init__(self, reactor: Reactor, tls: Mapping[str, Any], mutual: Mutual) -> None:
        """tls: as `WorkerOptions.tls` has it. mutual: of other brokers."""
        self._reactor, self._mutual = reactor, mutual
        self._until_s = 0
        self._kernel = False
        self.on = "clients" in tls
        if self.on:
            self._take(tls["clients"])

    def take(self, tls: Mapping[str, Any]) -> None:
        """Connections that come from now on have these certificates. ValueError says why not."""
        assert self.on == ("clients" in tls), "ports begin with TLS, or never have it"
        assert self._mutual.is_on == ("brokers" in tls), "and so do brokers among themselves"
        if self.on:
            self._take(tls["clients"])
        if self._mutual.is_on:
            self._mutual.take(tls["brokers"])

    def _take(self, tls: Mapping[str, Any]) -> None:
        self._look(tls["kernel"])
        self._reactor.set_tls(
            tls["certificate"].encode(),
            tls["key"].encode(),
            tls["client_ca"].encode(),
            bytes.fromhex(tls["ticket_keys"]),
            tls["handshakes_per_second"],
            int(1000 * limits.TLS_HANDSHAKE_SECONDS),
            self._kernel,
        )
        self._until_s = tls["until"]

    def _look(self, wanted: bool) -> None:
        """Whether the kernel seals large answers from now on, and the line that says so."""
        why = tls_kernel() if wanted else "tls.kernel is off"
        if not why and not self._kernel:
            log.info("TLS: the kernel seals what large answers say")
        elif why and wanted:
            log.info("TLS: the kernel can not seal large answers (%s), so this worker does", why)
        self._kernel = not why

    def status(self) -> dict[str, Any] | None:
        """For `/status`; None: there is no TLS."""
        if not self.on:
            return None
        return {"expires": _date(self._until_s), "kernel": self._kernel}

    def status_between(self) -> dict[str, Any] | None:
        """For `/status`: TLS between brokers; None: there is none."""
        mutual = self._mutual
        told = {"expires": _date(mutual.until_s), "refusesPlain": mutual.tls}
        return told if mutual.is_on else None

    def count_in(self, service: ShardService) -> None:
        """Among the metrics, from now on."""
        more = service.more_stats
        name = "tls_certificate_expires_timestamp_seconds"
        if self.on:
            service.more_stats = lambda: more() | {name: self._until_s}
        with_clients = service.more_stats
        between = "mutual_tls_certificate_expires_timestamp_seconds"
        if self._mutual.is_on:
            service.more_stats = lambda: with_clients() | {between: self._mutual.until_s}

    async def tell_failures(self) -> None:
        """One line a minute at most, however many there are."""
        before = dict.fromkeys(FAILURES, 0)
        while self.on:
            await asyncio.sleep(TELL_SECONDS)
            stats = self._reactor.stats()
            now = {each: stats[f"tls_handshakes_{each}"] for each in FAILURES}
            new = {each: now[each] - before[each] for each in FAILURES}
            if any(new.values()):
                log.warning(
                    "TLS: %d connections failed in the last minute, %d were too slow, and %d found"
                    " no place to wait; the last failed with: %s",
                    *(*new.values(), self._reactor.tls_reason() or "nothing"),
                )
            before = now


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
