"""What all brokers of a cluster say of themselves at a moment."""

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from barco.client.admin import AsyncAdmin
from barco.client.wire.access import Access
from barco.errors import BarcoError
from barco.model.health import Said

AT_ONCE = 16
"""Brokers that are asked at the same time."""

OTHERS_SECONDS = 2.0
"""A broker that was found, and not named, is not waited for longer."""

_T = TypeVar("_T")


@dataclass(slots=True)
class Reports:
    """Answers, by each broker's HOST:PORT of discovery."""

    status: Mapping[str, Any]
    """Of the first that answered of those that the user has named."""
    topology: Mapping[str, Any] | None = None
    """As that one tells it; None: it tells none yet."""
    said: dict[str, Said] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    """Of those that gave them."""


class Brokers:
    """All brokers of a cluster, found from those that a user has named."""

    def __init__(self, access: Access, timeout_s: float) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._first = AsyncAdmin(access, timeout_s=timeout_s)
        self._each: dict[str, AsyncAdmin] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    @property
    def first(self) -> AsyncAdmin:
        """For what any of them answers for all."""
        return self._first

    async def ask(self, *, metrics: bool = False) -> Reports:
        """Asks all of them; BarcoError: those that the user has named give no answer."""
        asked = Reports(await self._first.status())
        own = asked.status.get("ordinal")
        names = {str(self._access): self._first} if own is None else {}
        if asked.status.get("status") == "ready" or own is not None:
            asked.topology = await _or_none(self._first.topology(copies=True))
        for each in (asked.topology or {}).get("brokers", ()) if own is not None else ():
            ports = each.get("ports")
            if isinstance(ports, Mapping) and ports.get("discovery"):
                name = f"{each['name']}:{ports['discovery']}"
                names[name] = self._first if each["ordinal"] == own else self._admin(name)
        await asyncio.gather(*(self._one(name, names[name], asked, metrics) for name in names))
        return asked

    async def close(self) -> None:
        """Closes the connections."""
        for admin in (self._first, *self._each.values()):
            await admin.close()

    def _admin(self, name: str) -> AsyncAdmin:
        if name not in self._each:
            timeout_s = min(self._timeout_s, OTHERS_SECONDS)
            self._each[name] = AsyncAdmin(self._access.to(name), timeout_s=timeout_s)
        return self._each[name]

    async def _one(self, name: str, admin: AsyncAdmin, asked: Reports, metrics: bool) -> None:
        async with self._slots:
            try:
                asked.said[name] = asked.status if admin is self._first else await admin.status()
                if metrics:
                    asked.metrics[name] = await admin.metrics()
            except BarcoError as error:
                asked.said.setdefault(name, error.detail)
            except OSError as error:
                asked.said.setdefault(name, str(error))


async def _or_none(asking: Awaitable[_T]) -> _T | None:
    """What is not there while a broker starts."""
    try:
        return await asking
    except BarcoError:
        return None
