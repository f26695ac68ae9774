"""Who writes and who reads: E1 and E7 as clients see them.

A client for each slice numbers its events and repeats one until it is answered, with whoever leads.
A reader of a slice goes along its lineage, from any process that shows it what is next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barco.model.generation import Generation, Gid

from ..oracle import Violation

if TYPE_CHECKING:
    from .process import Process, State
    from .world import GrowthWorld

READ_SECONDS = 0.05


class Clients:
    """One producer for each slice."""

    def __init__(self, world: GrowthWorld) -> None:
        self.world = world
        self.answers: State = {}
        """By slice: the last number that was answered."""
        self.waits: State = {}
        """By slice: the number that is sent and not answered."""
        self.repeated = 0

    def fill(self, process: Process, gid: Gid, state: State, content: int) -> None:
        """What goes into a leader's next group; `state` is its window."""
        world, events = self.world, []
        for number in world.slices_of(world.oracle.generations[gid]):
            if number not in self.waits:
                if world.rng.random() < 0.6:
                    continue
                self.waits[number] = self.answers.get(number, 0) + 1
            count = self.waits[number]
            if state.get(number, 0) < count:
                state[number] = count
                events.append((number, count))
            elif process.durable.get(number, 0) >= count and process.counted.get(gid):
                self.repeated += 1
                self.answered(number, count)
        world.events[content] = events

    def answered(self, number: int, count: int) -> None:
        """The leader has committed it, now or before."""
        if self.waits.get(number) == count:
            del self.waits[number]
            self.answers[number] = count

    def history(self, number: int) -> list[int]:
        """All of a slice, along its lineage, as the registers say."""
        oracle, found = self.world.oracle, []
        generation: Generation | None = self.world.first_of(number)
        while generation is not None:
            value = oracle.decided.get(generation.gid)
            tail = value.tail if value else oracle.acknowledged.get(generation.gid, 0)
            contents = oracle.contents.get(generation.gid, {})
            for gseq in range(1, tail + 1):
                events = self.world.events[contents[gseq]]
                found += [count for slot, count in events if slot == number]
            generation = self.world.child_of(generation, number)
        return found

    def check(self) -> None:
        """E1: each event that was answered once, in order, and nothing twice."""
        for number in range(self.world.cut.slices):
            found = self.history(number)
            if found != list(range(1, len(found) + 1)):
                raise Violation("E1", f"slice {number} has {found}")
            if len(found) < self.answers.get(number, 0):
                raise Violation("E1", f"slice {number} ends with {len(found)}: answered is more")


class Reader:
    """Reads one slice, wherever it can."""

    def __init__(self, world: GrowthWorld, number: int) -> None:
        self.world = world
        self.number = number
        self.generation = world.first_of(number)
        self.gseq = 0
        self.read = 0
        self.early = getattr(world.mutant, "reads_early", False)

    def poll(self) -> None:
        """Some of what any process shows."""
        self.world.at(self.world.time + READ_SECONDS, self.poll)
        process = self.world.rng.choice(self.world.brokers)
        if process.replica is None or process.paused:
            return
        gid = self.generation.gid
        upto = process.replica.readable(gid)
        for head in process.disk.logs.get(gid, [])[self.gseq : upto]:
            self.gseq = head.gseq
            for number, count in self.world.events.get(head.header_crc, ()):
                if number == self.number:
                    self._take(count)
        self._go_on(process)

    def _take(self, count: int) -> None:
        if count != self.read + 1:
            text = f"slice {self.number}: {count} is read after {self.read}, {self.generation.gid}"
            raise Violation("E7", text)
        self.read = count

    def _go_on(self, process: Process) -> None:
        """To the child that has its slice, if this process knows one: a record names its parents
        and where they ended."""
        assert process.replica is not None
        token, gid = self.world.cut.token(self.number), self.generation.gid
        for held in process.replica._held.values():
            each = held.generation
            tails = [tail for parent, tail in each.parents if parent == gid]
            if tails and each.gid.token <= token < each.end:
                if self.early or tails[0] == self.gseq:
                    self.generation, self.gseq = each, 0
                return

    def has_read(self, answers: State) -> bool:
        """Whether it has read all that was answered until then."""
        return self.read >= answers.get(self.number, 0)
