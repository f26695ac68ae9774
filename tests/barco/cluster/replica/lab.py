"""One member's machine, B's, and what the others say to it."""

from typing import Any

from barco.cluster.replica.replica import Recovered, Replica, Settings
from barco.cluster.state.effects import Drain, Persist, Send, Warn
from barco.cluster.state.events import Drained, Persisted, Received
from barco.cluster.state.held import Held
from barco.model.generation import (
    Ballot,
    Generation,
    Gid,
    Identity,
    Kind,
    Parent,
    Successor,
    genesis,
)
from barco.protocol.replication import (
    Decided,
    DecidedRecord,
    Ping,
    Prepare,
    Promise,
    View,
)

A, B, C = (Identity(ordinal, bytes([ordinal + 1]) * 16) for ordinal in range(3))  # type: ignore
SESSION = 77
ECHO = (SESSION >> 2) + 50_000
"""Of what it sent 0.05 s after its start."""
GENESIS = genesis(0, 100, (0, 1, 2))


def child(epoch: int, parent: Generation, tail: int = 0) -> Generation:
    """Led by A's process 5."""
    parents = (Parent(parent.gid, tail),)
    return Generation(Gid(0, epoch), 100, A, 5, (A, B, C), parents)  # type: ignore[arg-type]


TWO = child(2, GENESIS)
THREE = child(3, TWO, 4)
FOUR = child(4, THREE, 9)
FIVE = child(5, FOUR, 9)
SEALED = [
    DecidedRecord(GENESIS.gid, Successor(0, Kind.RELEAD, (TWO,))),
    DecidedRecord(TWO.gid, Successor(4, Kind.RELEAD, (THREE,))),
]


class Heard(Replica):
    """The others have answered its first ping (rule A6)."""

    def _is_unheard(self, held: Held) -> bool:
        return False


class Lab:
    """B's machine; what it persists is stable at once."""

    def __init__(self, journal: list[Any], machine: type[Replica] = Heard) -> None:
        self.journal = list(journal)
        self.sent: list[tuple[int, Any]] = []
        self.warned: list[str] = []
        self.now = 10.1
        settings = Settings(me=B, session=SESSION, ranges=(GENESIS,))
        logs = {THREE.gid: Recovered(9, 99)}
        self.replica = machine(settings, self.journal, logs, lambda: 0.5, 10.0)
        self._do(self.replica.start(10.0))

    def _do(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                self.journal += effect.records
                self._do(self.replica.step(self.now, Persisted(effect.serial)))
            elif isinstance(effect, Drain):
                held = self.replica._held[effect.gid]
                drained = Drained(effect.gid, held.tail, held.tail_crc)
                self._do(self.replica.step(self.now, drained))
            elif isinstance(effect, Send):
                self.sent.append((effect.ordinal, effect.message))
            elif isinstance(effect, Warn):
                self.warned.append(effect.reason)

    def hear(self, sender: Identity, message: Any, session: int = 5) -> list[Any]:
        """What is sent to it in answer."""
        self.sent.clear()
        self._do(self.replica.step(self.now, Received(sender, session, message)))
        return [said for ordinal, said in self.sent if ordinal == sender.ordinal]

    def ping(
        self, sender: Identity, epoch: int = 3, session: int = 5, tail: int = 9, **given: int
    ) -> list[Any]:
        told = {"position": 1, "echo_us": ECHO} | given
        views = (View(Gid(0, epoch), tail, 9, False, True, True),)  # type: ignore[arg-type]
        ping = Ping(replaces=b"", able=True, doubts=(), stamp_us=1, views=views, **told)
        return self.hear(sender, ping, session)

    def decided(self, parent: int, epoch: int) -> None:
        """Both of the others say so."""
        known = {3: (THREE, FOUR), 4: (FOUR, FIVE)}
        before, after = known[parent]
        assert after.gid.epoch == epoch
        value = Successor(after.parents[0].tail, Kind.RELEAD, (after,))
        self.hear(A, Decided(before.gid, value, 5))
        self.hear(C, Decided(before.gid, value, 5), self.replica._peers[2].session)

    def votes(self, gid: Gid = THREE.gid) -> bool:
        """Whether it promises, as one that counts."""
        peer = self.replica._peers.get(2)  # In its present process, whichever that is.
        said = self.hear(C, Prepare(gid, Ballot(9, 2, 6)), peer.session if peer else 6)
        promises = [each for each in said if isinstance(each, Promise)]
        return any(not each.suspect for each in promises) or bool(
            self.replica._held[gid].promised == Ballot(9, 2, 6)
        )
