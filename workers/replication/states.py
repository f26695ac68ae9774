"""States of generations that have ended, asked of the members and given to them (docs/elastic.md).

Who is to lead a child whose parent's groups are not here asks a member that holds them. It is
answered in parts, or told why not; the machine hears of neither.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from crc32c import crc32c

from barco._native import Reactor, state_cut
from barco.errors import BarcoError, NotReadyError, PeerError, ProtocolError
from barco.limits import STATE_ANSWER_SECONDS, STATE_PART_BYTES, STATE_WAIT_SECONDS
from barco.model.generation import Gid
from barco.protocol.replication import AskState, Message, NoState, StatePiece
from barco.protocol.replication_codec import REASON_CHARS_MAX
from barco.types import Epoch, Token
from barco.workers.replication.link import Link
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.restoring import StateAt
from barco.workers.watched import watched

ASK_AGAIN_SECONDS = 0.25
"""After nobody had it: who has just learned of the end may be about to note that all is there."""

KEPT_SECONDS = 10.0
"""The last state that was made is there for so long, for whoever asks again."""

log = logging.getLogger("barco.replication")


class _Kept(NamedTuple):
    asked: AskState
    found: StateAt
    crc: int


@dataclass(slots=True)
class _Asked:
    """What is under way, of one member."""

    member: int
    what: AskState
    parts: bytearray = field(default_factory=bytearray)
    first: StatePiece | None = None
    refused: str = ""
    sums_alone: bool = False
    """Only what the first part says of all of it is wanted."""
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def done(self) -> bool:
        """It has all that is wanted, or will not get it."""
        whole = self.first is not None and len(self.parts) == self.first.total
        return whole or bool(self.refused) or (self.sums_alone and self.first is not None)

    @property
    def sums(self) -> tuple[int, int, int]:
        """Bytes and checksum of the whole, and of the last group's header."""
        assert self.first is not None
        return self.first.total, self.first.crc, self.first.header_crc


class States:
    """Both sides of it, for one replica."""

    def __init__(
        self,
        links: Mapping[int, Link],
        token: Token,
        reactor: Reactor,
        store: ReplicaStore,
        tail_of: Callable[[Gid], int | None],
        session_of: Callable[[Gid], int | None],
        state_bytes_max: int,
        fatal: Callable[[str], None],
    ) -> None:
        """`tail_of`: where a generation ended, `session_of`: whose it was, as far as is known here.
        `state_bytes_max`: of a state that is taken. `fatal`: end the process."""
        self._links = links
        self._token = token
        self._reactor = reactor
        self._store = store
        self._tail_of, self._session_of = tail_of, session_of
        self._state_bytes_max = state_bytes_max
        self._fatal = fatal
        self._asked: _Asked | None = None
        self._waiting: dict[int, AskState] = {}
        """By peer, what it asked for last."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._making = asyncio.Lock()
        self._kept: _Kept | None = None

    def heard(self, ordinal: int, message: Message, data: bytearray | None) -> None:
        """One of `replication.OF_STATES`, from this peer."""
        if isinstance(message, AskState):
            self._waiting[ordinal] = message
            task = self._tasks.get(ordinal)
            if task is None or task.done():
                what = f"broker {ordinal} can not be told a state"
                self._tasks[ordinal] = watched(self._answer_all(ordinal), what, self._fatal)
        elif isinstance(message, (StatePiece, NoState)):
            asked = self._asked
            if (
                asked is not None
                and ordinal == asked.member
                and _names(message) == _names(asked.what)
            ):
                self._take(asked, message, data)

    # --- Answers --------------------------------------------------------------------------------

    async def _answer_all(self, ordinal: int) -> None:
        while (asked := self._waiting.pop(ordinal, None)) is not None:
            try:
                await self._answer(ordinal, asked)
            except (BarcoError, ValueError) as error:
                words = "".join(filter(str.isprintable, str(error)))[:REASON_CHARS_MAX]
                self._links[ordinal].send(NoState(*_names(asked), words))

    async def _answer(self, ordinal: int, asked: AskState) -> None:
        """All of it, as the link has room. NotReadyError: why not."""
        if reason := self._refusal(asked):
            raise NotReadyError(reason)
        async with self._making:  # One after the other: each takes memory.
            kept = await self._make(asked)
        assert kept.asked == asked, "what is kept is of one question"
        state, link = kept.found.state, self._links[ordinal]
        for at in range(0, len(state), STATE_PART_BYTES):
            await link.room()
            if ordinal in self._waiting:
                return  # It does not wait for this one any more.
            part = state[at : at + STATE_PART_BYTES]
            whole = (len(state), kept.crc, kept.found.header_crc)
            if not link.send(StatePiece(*_names(asked), at, len(part), *whole), data=part):
                return

    def _refusal(self, asked: AskState) -> str:
        """Why it can not be had here; empty: it can."""
        ended, session = self._tail_of(asked.gid), self._session_of(asked.gid)
        if asked.gid.token != self._token:
            return f"no groups of {asked.gid} are here"
        if ended is None:
            return f"it is not known here that {asked.gid} has ended"
        if ended != asked.tail:
            return f"{asked.gid} has ended with group {ended}"
        if asked.session and session is not None and asked.session != session:
            return f"{asked.gid} is another one here"
        generation = self._store.lineage.get(asked.gid.epoch)
        if generation is None or generation.tail != asked.tail:
            return f"not all groups of {asked.gid} are here"
        return f"{asked.gid} is too old: its groups are removed" if generation.expired else ""

    async def _make(self, asked: AskState) -> _Kept:
        if self._kept is not None and self._kept.asked == asked:
            return self._kept
        slices = range(asked.first, asked.first + asked.slices)
        self._kept = None
        found = await self._store.state_at(asked.gid.epoch, slices)
        kept = self._kept = _Kept(asked, found, crc32c(found.state))
        asyncio.get_running_loop().call_later(KEPT_SECONDS, self._drop, kept)
        return kept

    def _drop(self, kept: _Kept) -> None:
        if self._kept is kept:
            self._kept = None

    # --- Questions ------------------------------------------------------------------------------

    async def fetch(self, epoch: int, tail: int, header_crc: int | None) -> bytes:
        """As `StateSource`: asks one member after the other, for STATE_WAIT_SECONDS.

        The same groups make the same bytes everywhere: what one gives is taken when another says
        that it has the same, or when no other has it.
        """
        assert tail > 0, "without a group there is no state of its own"
        gid = Gid(self._token, Epoch(epoch))
        what = AskState(gid, tail, *self._reactor.shard_slices(), self._session_of(gid) or 0)
        loop = asyncio.get_running_loop()
        until, said = loop.time() + STATE_WAIT_SECONDS, dict[int, str]()
        while True:
            for member in sorted(self._links, key=lambda each: not self._links[each].connected):
                try:
                    asked = await self._ask(member, what)
                    state = await self._checked(asked, header_crc)
                    if await self._backed(asked):
                        return state
                    raise NotReadyError("the others have another state")
                except (NotReadyError, PeerError, ValueError) as error:
                    if said.get(member) != str(error):
                        log.warning("the state of %s: broker %d: %s", gid, member, error)
                    said[member] = str(error)
            if loop.time() > until:
                words = "; ".join(f"broker {each}: {why}" for each, why in said.items())
                raise NotReadyError(f"Nobody gives the state behind group {tail} of {gid}. {words}")
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def _backed(self, asked: _Asked) -> bool:
        """Whether another has the same, or no other has any."""
        answered = False
        for other in self._links:
            if other == asked.member or not self._links[other].connected:
                continue
            try:
                if (await self._ask(other, asked.what, sums_alone=True)).sums == asked.sums:
                    return True
            except NotReadyError:
                continue
            answered = True
        return not answered

    async def _ask(self, member: int, what: AskState, *, sums_alone: bool = False) -> _Asked:
        """What one member gives. NotReadyError: why it does not."""
        assert self._asked is None, "one call at a time"
        asked = self._asked = _Asked(member, what, sums_alone=sums_alone)
        try:
            if not self._links[member].send(what):
                raise NotReadyError("there is no connection")
            async with asyncio.timeout(STATE_ANSWER_SECONDS):
                while not asked.done:
                    asked.news.clear()
                    await asked.news.wait()
        except TimeoutError:
            raise NotReadyError(f"no answer in {STATE_ANSWER_SECONDS:.0f} s") from None
        finally:
            self._asked = None
        if asked.refused:
            raise NotReadyError(asked.refused)
        return asked

    async def _checked(self, asked: _Asked, header_crc: int | None) -> bytes:
        """The state, if it is what the parts said. ProtocolError, or ValueError: it is none."""
        what, (_, crc, last_crc) = asked.what, asked.sums
        if header_crc is not None and last_crc != header_crc:
            raise ProtocolError(f"its group {what.tail} is another one")
        if crc32c(asked.parts) != crc:
            raise ProtocolError("the parts are not what was sent")
        # All of it is looked through, and what is of other slices does not come in.
        return await asyncio.to_thread(state_cut, asked.parts, what.first, what.slices)

    def _take(self, asked: _Asked, message: StatePiece | NoState, data: bytearray | None) -> None:
        if isinstance(message, NoState):
            asked.refused = message.reason or "it does not say why"
        elif asked.done or (asked.first is None and message.at > 0):
            return  # The rest of an answer before, of which only the sums were wanted.
        else:
            assert data is not None and len(data) == message.size, "`Inputs` has looked"
            first = asked.first = asked.first or message
            if message.total > self._state_bytes_max:
                asked.refused = f"a state of {message.total} bytes is too large for this broker"
            elif (message.total, message.crc, message.header_crc, message.at) != (
                *(first.total, first.crc, first.header_crc),
                len(asked.parts),
            ) or message.at + message.size > message.total:
                asked.refused = "the parts are not of one state"
            else:
                asked.parts += data
        asked.news.set()

    async def close(self) -> None:
        """Ends what is under way."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _names(message: AskState | StatePiece | NoState) -> tuple[Gid, int, int, int]:
    return message.gid, message.tail, message.first, message.slices
