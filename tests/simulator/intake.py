"""What the core does for a follower without a word to its machine (`native/broker/intake.c`).

While the machine calls a generation steady, its leader's next group is taken and acknowledged when
it is stable. The machine hears of it before its next step, and with that step it is decided anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barco.cluster.replica.follower import Steady
from barco.cluster.state import events as on
from barco.model.generation import Gid, GroupHead
from barco.protocol.append_frame import Append, Appended

if TYPE_CHECKING:
    from .broker import Broker


class Intake:
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.steady: dict[Gid, Steady | None] = {}
        """Since the machine's last step."""
        self.committed: dict[Gid, int] = {}
        self.news: dict[Gid, list[int]] = {}
        """What `Followed` is going to say."""
        self.taken = 0

    def crash(self) -> None:
        self.steady.clear()
        self.committed.clear()
        self.news.clear()

    def events(self) -> list[on.Event]:
        """The news, for the step that comes now; after it nothing holds any more."""
        found: list[on.Event] = [on.Followed(gid, *news) for gid, news in self.news.items()]
        self.news.clear()
        self.disarm()
        return found

    def disarm(self) -> None:
        self.steady.clear()

    def armed(self, gid: Gid) -> Steady | None:
        """Where it stands, if it may be gone on with."""
        if gid not in self.steady:
            broker = self.broker
            steady = broker.replica.steady(gid) if broker.replica is not None else None
            if not broker.logs_of(gid.token).rests(gid) or gid.token in broker.shut:
                steady = None
            if steady is not None and steady.gseq != broker.disk.end(gid)[0]:
                steady = None
            self.steady[gid] = steady
            self.committed[gid] = steady.committed if steady is not None else 0
        return self.steady[gid]

    def take(self, event: on.Event) -> bool:
        """Whether this is the usual case; then it is done."""
        if not isinstance(event, on.Received) or not isinstance(event.message, Append):
            return False
        broker, message = self.broker, event.message
        gid, head = message.gid, message.head
        steady = self.armed(gid)
        if steady is None or (event.sender, event.session) != (steady.leader, steady.session):
            return False
        gseq, crc = broker.disk.end(gid)
        if (message.session, head.gseq, head.prev_crc) != (steady.session, gseq + 1, crc):
            return False
        if broker.disk.full or broker.refuses:
            return False
        self.taken += 1
        news = self.news.setdefault(gid, [0] * 5)
        news[:2] = head.gseq, head.header_crc
        broker.submit(gid, head)
        if message.committed > self.committed[gid]:
            news[4] = self.committed[gid] = message.committed
            self.show(gid)
        return True

    def landed(self, gid: Gid, head: GroupHead) -> bool:
        """Whether the leader was answered."""
        steady = self.armed(gid)
        if steady is None:
            return False
        self.news.setdefault(gid, [0] * 5)[2:4] = head.gseq, head.header_crc
        self.answer(gid, steady, head.gseq)
        self.show(gid)
        return True

    def answer(self, gid: Gid, steady: Steady, gseq: int) -> None:
        self.broker.world.send(self.broker, steady.leader.ordinal, Appended(gid, gseq))

    def show(self, gid: Gid) -> None:
        upto = min(self.committed[gid], len(self.broker.disk.log(gid)))
        if upto > 0:
            self.broker.world.oracle.committed(self.broker, gid, upto)


class GoesOn(Intake):
    """The machine's steps, and so its promises, do not end what it was told to do."""

    def disarm(self) -> None:
        for gid in [gid for gid, steady in self.steady.items() if steady is None]:
            del self.steady[gid]


class Early(Intake):
    """What is on its way to the disk is acknowledged."""

    def take(self, event: on.Event) -> bool:
        taken = super().take(event)
        if taken:
            assert isinstance(event, on.Received) and isinstance(event.message, Append)
            gid, head = event.message.gid, event.message.head
            steady = self.armed(gid)
            assert steady is not None
            self.answer(gid, steady, head.gseq)
        return taken
