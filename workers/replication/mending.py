"""Sound groups for what is damaged here, from the members: `Fetch` and `Fetched`, by the machine.

The machine fetches what its log lacks. What a repair asks for is here by its account, so it would
drop the answers: they are taken out before it hears of them.
"""

import asyncio
from collections.abc import Mapping

from barco.model.generation import Gid
from barco.protocol.replication import Fetch, Fetched, Message
from barco.types import Epoch, Token
from barco.workers.replication.link import Link

IDLE_SECONDS = 2.0
"""Without a further group the member has no more of them, or has gone."""


class _Asked:
    """What is under way."""

    def __init__(self, member: int, gid: Gid, first: int, last: int) -> None:
        self.member, self.gid, self.next, self.last = member, gid, first, last
        self.groups: list[bytearray] = []
        self.news = asyncio.Event()


class Mending:
    """The other members, as `storage.scrub` asks them."""

    def __init__(self, links: Mapping[int, Link], token: Token) -> None:
        self._links = links
        self._token = token
        self._asked: _Asked | None = None

    def members(self, epoch: int) -> list[int]:
        """The others, those that can be reached first."""
        return sorted(self._links, key=lambda ordinal: not self._links[ordinal].connected)

    async def fetch(self, member: int, epoch: int, first: int, last: int) -> list[bytearray]:
        """Groups from `first` on, as far as this member gives them. One call at a time."""
        assert self._asked is None, "one call at a time"
        assert 0 < first <= last, "something is asked for"
        gid = Gid(self._token, Epoch(epoch))
        asked = self._asked = _Asked(member, gid, first, last)
        try:
            self._links[member].send(Fetch(gid, first, last))
            while asked.next <= last:
                asked.news.clear()
                async with asyncio.timeout(IDLE_SECONDS):
                    await asked.news.wait()
        except TimeoutError:
            pass
        finally:
            self._asked = None
        assert len(asked.groups) == asked.next - first <= last - first + 1
        return asked.groups

    def take(self, sender: int, message: Message, group: bytearray | None) -> bool:
        """Whether this was asked for here."""
        asked = self._asked
        if asked is None or group is None or not isinstance(message, Fetched):
            return False
        if (sender, message.gid) != (asked.member, asked.gid):
            return False
        if message.head.gseq != asked.next or asked.next > asked.last:
            return False
        assert len(group) == message.head.bytes, "`Inputs` has looked"
        asked.groups.append(group)
        asked.next += 1
        asked.news.set()
        return True
