"""What the core does for a follower without a word to its machine (`native/broker/intake.c`).

While it is armed (`barco.cluster.logs.driving`), the leader's next group is taken and acknowledged
when it is stable. The machine hears of it before its next step, and after that it is decided anew.
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
        self.armed: dict[Gid, Steady] = {}
        """Since the machine's last step."""
        self.committed: dict[Gid, int] = {}
        self.news: dict[Gid, list[int]] = {}
        """What `Followed` is going to say."""
        self.taken = 0

    def crash(self) -> None:
        self.armed.clear()
        self.committed.clear()
        self.news.clear()

    def events(self) -> list[on.Event]:
        """The news, for the step that comes now; after it is arranged anew."""
        found: list[on.Event] = [on.Followed(gid, *news) for gid, news in self.news.items()]
        self.news.clear()
        return found

    def disarm(self) -> None:
        self.armed.clear()

    def arm(self, gid: Gid, steady: Steady) -> None:
        """As has been decided, if the core finds its log so (`intake_arm`)."""
        if gid.token not in self.broker.shut and steady.gseq == self.broker.disk.end(gid)[0]:
            self.armed[gid] = steady
            self.committed[gid] = steady.committed

    def take(self, event: on.Event) -> bool:
        """Whether this is the usual case; then it is done."""
        if not isinstance(event, on.Received) or not isinstance(event.message, Append):
            return False
        broker, message = self.broker, event.message
        gid, head = message.gid, message.head
        steady = self.armed.get(gid)
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
        steady = self.armed.get(gid)
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
        pass


class Early(Intake):
    """What is on its way to the disk is acknowledged."""

    def take(self, event: on.Event) -> bool:
        taken = super().take(event)
        if taken:
            assert isinstance(event, on.Received) and isinstance(event.message, Append)
            gid, head = event.message.gid, event.message.head
            self.answer(gid, self.armed[gid], head.gseq)
        return taken
