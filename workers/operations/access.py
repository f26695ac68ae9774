"""Who may do what, as this process has heard, and how that changes.

Whoever leads slice 0 keeps it (`barco.workers.shard.access`). Each process asks there, and then
waits with its question for the next change: it is live everywhere as soon as it is stable.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barco.errors import BarcoError, NoLeaderError, NotFoundError, NotReadyError, RequestError
from barco.model.access import ALL, EVERYBODY, QUOTAS, AccessTable, Quota, User
from barco.model.options import WorkerOptions
from barco.workers.peers.leaders import Leaders
from barco.workers.peers.ranges import RingRanges
from barco.workers.seams import ReactorLike, SiblingsLike
from barco.workers.shard.access import SLICE, UNREADABLE, AccessKeeper, packed, unpacked
from barco.workers.shard.appends import Appends

WAIT_SECONDS = 2.0
ASK_SECONDS = 5.0
"""Longer than what waits; in it a connection that is dead is found out."""

AGAIN_SECONDS = 0.2

ASKED_SECONDS = 5 * WAIT_SECONDS
"""So long a process that lets nobody in without a token counts after it has asked; such a one asks
every two seconds."""

_ASKS_NOW = (
    "access.required is not set here, but other brokers of this cluster ask for tokens and there"
    " are users: this broker asks for them, too, from now on. Set access.required = true"
)

_WENT_BACK = (
    "users went back from version %d to %d: the log of slice 0 has lost changes, for an old data"
    " directory was put back or data was given up. Who was removed may be there again: look at"
    " `barco users list`"
)

log = logging.getLogger("barco.worker")

Operations = dict[str, Callable[[Mapping[str, Any]], Awaitable[Any]]]


class AccessDesk:
    """Where a worker asks who may do what, and has it changed."""

    def __init__(
        self,
        options: WorkerOptions,
        reactor: ReactorLike,
        appends: Appends,
        heard: tuple[RingRanges, Leaders],
    ) -> None:
        self._options = options
        self._ranges, self._leaders = heard
        first = [
            User(name, (bytes.fromhex(digest),), ALL)
            for name, digest in options.access.get("first", [])
        ]
        self._keeper = AccessKeeper(reactor, appends, AccessTable.of(first))
        self._leads = False
        self._changed = asyncio.Event()
        self.required = bool(options.access.get("required"))
        """Whether a request has to show who asks: it is configured so or, once there are users,
        at any other broker of the cluster."""
        self._asked_at = -math.inf
        self.table: AccessTable | None = None
        """As its keeper has said; None: nobody has been asked yet."""
        self.fault = ""
        """What the keeper says of users that it can not read; empty: it has said who they are."""
        self._why = ""
        self.on_news: Callable[[AccessTable], None] = lambda table: None
        """Called with each table that is another one."""

    # --- Who keeps it ------------------------------------------------------------------------

    def open(self) -> None:
        """This worker leads its range now."""
        self._leads = SLICE in self._ranges.numbers_of(self._options.held.token)
        if self._leads:
            self._keeper.open()
        self._wake()

    def close(self) -> None:
        """It does not any more: who waits here asks elsewhere."""
        self._leads = False
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _check_leads(self) -> None:
        if not self._leads:
            raise NotReadyError("This worker does not lead slice 0 (any more).")

    def operations(self) -> Operations:
        """By name."""
        return {
            "access": self._table,
            "access_wait": self._wait,
            "access_asked": self._asked,
            "access_set": self._set,
            "access_bound": self._set,  # Of an earlier version nobody takes it for a removal.
        }

    def _heed(self, args: Mapping[str, Any]) -> None:
        if args.get("required") is True:
            self._asked_at = asyncio.get_running_loop().time()

    async def _asked(self, args: Mapping[str, Any]) -> bool:
        """Whether there are users, and some process of the ring lets in nobody else."""
        self._check_leads()
        self._keeper.check()
        recently = asyncio.get_running_loop().time() - self._asked_at < ASKED_SECONDS
        return recently and self._keeper.table.version > 0

    async def _table(self, args: Mapping[str, Any]) -> bytes:
        """{"required": whether the one who asks lets in nobody else}."""
        self._check_leads()
        self._heed(args)
        self._keeper.check()
        return packed(self._keeper.table)

    async def _wait(self, args: Mapping[str, Any]) -> bool:
        """{"seen": its digest, "required": as above}: true as soon as it is another one."""
        seen: bytes = args["seen"]
        self._heed(args)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                while self._leads and self._keeper.table.digest == seen:
                    await self._changed.wait()
        self._check_leads()
        self._keeper.check()
        return self._keeper.table.digest != seen

    async def _set(self, args: Mapping[str, Any]) -> bool:
        """{"name", "hash": bytes or None, "keep": bool, "grants": [text] or None, fields of its
        quota: numbers}, what is not there stays; with the name alone the user goes. True: it is a
        new one."""
        self._check_leads()
        name = args["name"]
        goes = all(args.get(each) is None for each in ("hash", "grants", *QUOTAS.values()))
        created = name not in self._keeper.table.users

        def propose(current: AccessTable) -> AccessTable:
            known = current.users.get(name)
            if goes:
                if known is None:
                    raise NotFoundError(f"There is no user {str(name)[:64]!a}.")
                return current.without(name)
            after = current.with_user(_merged(known, args))
            packed(after)  # It may be too large.
            return current if known is not None and after.users[name] == known else after

        await self._keeper.change(propose, anew=not self.required)
        self._wake()
        return created

    # --- Who asks ----------------------------------------------------------------------------

    @property
    def is_heard(self) -> bool:
        """Whether it can be told who may do what."""
        return self.table is not None or not self.required

    @property
    def unheard(self) -> str:
        """Why it can not be told who may do what, in words."""
        return f"Who may do what has not been heard yet. {self._why}".strip()

    def who(self, token: str | None, name: str | None = None) -> User | None:
        """Whose token that is, which was said to be that user's; without a token, who has shown a
        certificate with that name. None: nobody's, or another's. NotReadyError as long as nobody
        has said."""
        if not self.required:
            return EVERYBODY
        if self.table is None:
            raise NotReadyError(self.unheard)
        if token is None:
            return self.table.users.get(name or "")
        return self.table.find(token, name)

    @property
    def watches(self) -> bool:
        """Whether it has to be heard who may do what, or whether somebody asks."""
        return self.required or self._options.ring_size > 1

    async def run(self, siblings: SiblingsLike) -> None:
        """Keep up with its keeper; ends when it is cancelled."""
        while True:
            try:
                if not self.required and not await self._is_asked(siblings):
                    await asyncio.sleep(WAIT_SECONDS)
                    continue
                args = {"seen": (await self.look(siblings)).digest, "required": True}
                while not await self._ask(siblings, "access_wait", args):
                    pass
            except BarcoError:  # Nobody keeps it just now, or does not answer.
                await asyncio.sleep(AGAIN_SECONDS)

    async def _is_asked(self, siblings: SiblingsLike) -> bool:
        """Whether other brokers ask for tokens, though it is not configured here: whoever came in
        here would be let in by all of them."""
        try:
            return bool(await self._ask(siblings, "access_asked", {}))
        except RequestError:  # An earlier version, which can not say.
            return False

    async def look(self, siblings: SiblingsLike) -> AccessTable:
        """The table as its keeper says now; it counts from then on."""
        try:
            table = unpacked(await self._ask(siblings, "access", {"required": True}))
        except (ValueError, TypeError) as error:
            raise NotReadyError(f"Who leads slice 0 has said what is no table: {error}.") from None
        except BarcoError as error:
            self._why = error.detail
            self.fault = self._why if self._why == UNREADABLE else ""
            raise
        self.fault = ""
        if not self.required:
            log.error(_ASKS_NOW)
            self.required = True
        if table != self.table:
            if self.table is not None and table.version < self.table.version:
                log.error(_WENT_BACK, self.table.version, table.version)
            self.table = table
            self.on_news(table)
        return table

    async def _ask(self, siblings: SiblingsLike, op: str, args: Mapping[str, Any]) -> Any:
        peer = self._leaders.peer(self._ranges.of_slice(SLICE))
        if peer is None:
            raise NoLeaderError("Nobody leads slice 0 at the moment.")
        return await siblings.call(peer, op, args, ASK_SECONDS)


def _merged(known: User | None, args: Mapping[str, Any]) -> User:
    """The user as it shall be: what is not given stays."""
    new, grants = args.get("hash"), args.get("grants")
    if known is None and (new is None or grants is None):
        raise NotFoundError("There is no such user: a new one needs a token and grants.")
    hashes = list(known.hashes) if known is not None else []
    if new is not None:
        hashes = [new, *hashes[:1]] if args.get("keep") else [new]
    if grants is None:
        assert known is not None, "looked at above"
        grants = list(map(str, known.grants))
    quota = known.quota if known is not None else Quota()
    quotas = [args.get(each, getattr(quota, each)) for each in QUOTAS.values()]
    return User.checked(args["name"], hashes, grants, quotas)
