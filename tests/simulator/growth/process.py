"""A process of one range: the surroundings of one machine, and what its core knows of producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barco.cluster.logs import events as le
from barco.cluster.state import effects as do
from barco.model.generation import Generation, Gid, Parent, Successor
from barco.protocol.replication import DecidedRecord

from ..broker import Broker
from ..carrier import MEND_SECONDS, STATE_TRIES
from ..disk import Disk

if TYPE_CHECKING:
    from .world import GrowthWorld

State = dict[int, int]
"""By slice: the last number of its producer that is stored (the window of deduplication)."""


class Process(Broker):
    """What one broker holds of one range."""

    world: GrowthWorld

    def __init__(self, world: GrowthWorld, disk: Disk, token: int) -> None:
        super().__init__(world, disk)
        self.token = token
        self.states: dict[Gid, State] = {}
        """What the generations that it leads begin with, and what they took since."""
        self.durable: State = {}
        """Of what it leads: what is committed."""
        self.counted: dict[Gid, int] = {}
        """Up to where the clients of what it leads were answered."""
        self.words: dict[tuple[Generation, Successor], set[int]] = {}
        """Who has said what was decided elsewhere."""
        self.pull_at = 0.0

    def forget(self) -> None:
        """With the process goes what its memory had."""
        super().forget()
        self.states, self.durable, self.counted, self.words = {}, {}, {}, {}

    def opened(self) -> bool:
        """Whether it leads or follows anything."""
        return self.replica is not None and bool(self.replica._open())

    def decided(self) -> list[Gid]:
        """Whose successor its journal has."""
        return [each.gid for each in self.disk.journal if isinstance(each, DecidedRecord)]

    # --- State ------------------------------------------------------------------------------

    def made_state(self, life: int, token: int, generation: Generation, tries: int) -> None:
        """Of its own files, or of a member of each parent that is in reach."""
        if life != self.life:
            return
        state = self.world.states.of_parents(self, generation)
        if state is not None:
            slices = self.world.slices_of(generation)
            self.states[generation.gid] = {n: state.get(n, 0) for n in slices}
            self.tell(token, le.Done())
        elif tries:
            at = self.world.time + MEND_SECONDS
            self.world.at(at, self.made_state, life, token, generation, tries - 1)
        else:
            self.world.seen.note("nobody has the state")
            self.world.stopped(self, "nobody has the state")

    def _make_state(self, token: int, effect: le.MakeState) -> None:
        self.world.io(self, self.made_state, self.life, token, effect.generation, STATE_TRIES)

    # --- Clients ----------------------------------------------------------------------------

    def fill(self, gid: Gid, gseq: int, content: int) -> None:
        """The next group: GEN_START says with what the generation begins."""
        state = self.states.setdefault(gid, {})
        if gseq == 1:
            self.world.starts[content] = dict(state)
        self.world.clients.fill(self, gid, state, content)

    def _commit(self, effect: do.Commit) -> None:
        super()._commit(effect)
        gid = effect.gid
        if gid not in self.leads or self.replica is None:
            return
        counted = self.counted.get(gid, 0)
        if counted == 0:
            first = self.disk.log(gid)[0].header_crc
            self.durable = dict(self.world.starts[first])
        for head in self.disk.log(gid)[counted : effect.gseq]:
            for number, count in self.world.events[head.header_crc]:
                self.durable[number] = count
                self.world.clients.answered(number, count)
        self.counted[gid] = effect.gseq

    def state_at(self, parent: Parent) -> State | None:
        """What its files say of a generation's end; None: they do not have all of it."""
        log = self.disk.logs.get(parent.gid, ())
        if len(log) < parent.tail or self.disk.begins.get(parent.gid, 1) > 1:
            return None
        found = dict(self.world.starts[log[0].header_crc])
        for head in log[: parent.tail]:
            found.update(self.world.events[head.header_crc])
        return found
