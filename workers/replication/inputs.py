"""What peers send, on connections that they dialled: frames, cut by the core (broker/intake.h).

Of a generation that is followed in steady state the core takes the groups by itself, and answers
its leader: see `Inputs.arm`.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from barco._native import Reactor, Seal
from barco.cluster.replica.follower import Steady
from barco.errors import ProtocolError
from barco.limits import REPLICATION_PENDING_BYTES_MAX
from barco.model.generation import Identity
from barco.protocol.append_frame import Append
from barco.protocol.link import Hello
from barco.protocol.replication import Accept, Message, Prepare, bytes_beside
from barco.protocol.replication_codec import U32
from barco.workers.peers.links import End
from barco.workers.process.selector import Upcall
from barco.workers.replication import wire
from barco.workers.replication.mutants import DAMAGING, MUTANT

log = logging.getLogger("barco.replication")


class Input(NamedTuple):
    """One connection."""

    number: int
    """The core's."""
    sender: Identity
    session: int


def bound(end: Input, message: Message) -> Message:
    """The message, if it is its sender's own: nobody appends or proposes in another's name, nor in
    that of another start of its process. ProtocolError if it is not."""
    if isinstance(message, Append):
        own = message.session == end.session
    elif isinstance(message, (Prepare, Accept)):
        own = message.ballot[1:] == (end.sender.ordinal, end.session)
    else:
        own = True
    if not own:
        raise ProtocolError(f"an {type(message).__name__} in the name of another process")
    return message


Received = Callable[[Input, Message, bytearray | None], None]
"""Takes a message, and the group behind it if there was one."""


class Inputs:
    """The connections of all peers, one of each."""

    def __init__(
        self,
        reactor: Reactor,
        *,
        received: Received,
        on_lost: Callable[[Input], None],
        pending_bytes: Callable[[], int],
        group_bytes_max: int,
    ) -> None:
        """`pending_bytes`: of groups that came and still wait to be written."""
        self._reactor = reactor
        self._received = received
        self._on_lost = on_lost
        self._pending_bytes = pending_bytes
        assert group_bytes_max > 0
        self._group_bytes_max = min(group_bytes_max, U32)
        self._open: dict[int, Input] = {}
        self._paused = False
        self._groups = 0

    def take(self, hello: Hello, sender: Identity, end: End) -> None:
        """A peer has dialled: nothing more comes on what it dialled before."""
        for other in list(self._open.values()):
            if other.sender.ordinal == sender.ordinal:
                self._close(other)
        number = self._reactor.adopt_replica(end.detach(), self._group_bytes_max, end.seal)
        assert number not in self._open, "the core's number of another connection"
        assert all(each.sender.ordinal != sender.ordinal for each in self._open.values())
        self._open[number] = Input(number, sender, hello.session)
        if self._paused:
            self._reactor.pause_replica(number, True)

    def upcall(self, upcall: Upcall) -> None:
        """From the reactor: frame or replica_closed."""
        end = self._open.get(upcall[1])
        if end is None:
            return
        if upcall[0] == "replica_closed":
            self._lost(end)
            return
        _, _, message, group = upcall
        try:
            self._received(end, bound(end, self._read(message, group)), group)
        except ProtocolError as error:
            log.error("closing broker %d's connection: %s", end.sender.ordinal, error)
            self._lost(end)

    def _close(self, end: Input) -> None:
        assert self._open[end.number] is end, "it is closed once"
        del self._open[end.number]
        self._reactor.close_replica(end.number)

    def _lost(self, end: Input) -> None:
        self._close(end)
        self._on_lost(end)

    def _read(self, body: bytes, group: bytearray | None) -> Message:
        message = wire.decode(body)
        beside = bytes_beside(message)
        if beside is None:
            if group is not None:
                raise ProtocolError("a group came with a message that has none")
            return message
        if group is None or len(group) != beside:
            raise ProtocolError("a group is not as long as its message says")
        self._groups += 1
        if MUTANT == DAMAGING and self._groups % 20 == 0 and len(group) > 40:
            group[40] ^= 1
        return message

    def hold_back(self) -> None:
        """Back-pressure: what does not come in yet, its sender keeps or drops."""
        if not self._paused and self._pending_bytes() > REPLICATION_PENDING_BYTES_MAX:
            self._pause(True)

    def go_on(self) -> None:
        """By the logs, of which fewer groups wait now."""
        assert self._pending_bytes() >= 0, "a group is counted until it is written or dropped"
        if self._paused and self._pending_bytes() <= REPLICATION_PENDING_BYTES_MAX // 2:
            self._pause(False)

    def _pause(self, paused: bool) -> None:
        assert paused != self._paused, "peers are told when it changes"
        self._paused = paused
        for number in self._open:
            self._reactor.pause_replica(number, paused)

    def close(self) -> None:
        """Hang up, without a word to anybody."""
        for end in list(self._open.values()):
            self._close(end)

    def arm(self, steady: Steady, answer_fd: int, seal: Seal | None = None) -> bool:
        """What its leader sends next is taken as it comes, and acknowledged on `answer_fd`, sealed
        by `seal`, until any other frame comes."""
        assert answer_fd >= 0 and steady.gseq >= 0
        if MUTANT == DAMAGING:
            return False
        for end in self._open.values():
            if (end.sender, end.session) == (steady.leader, steady.session):
                return self._reactor.arm_intake(
                    end.number, answer_fd, steady.gseq, steady.header_crc, steady.committed, seal
                )
        return False
