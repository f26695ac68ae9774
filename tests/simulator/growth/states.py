"""The state of a parent's end, from whoever has its groups (`workers/replication/states.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barco.model.generation import GENESIS_EPOCH, Generation, Parent

if TYPE_CHECKING:
    from .process import Process, State
    from .world import GrowthWorld


class States:
    """What a process gets when it asks for one."""

    def __init__(self, world: GrowthWorld) -> None:
        self.world = world
        self.forgets = getattr(world.mutant, "forgets_states", False)
        self.early = getattr(world.mutant, "early_states", False)

    def of_parents(self, process: Process, generation: Generation) -> State | None:
        """The union of the parents' states; None: nobody in reach has one of them."""
        found: State = {}
        for parent in generation.parents:
            state = self._of(process, parent)
            if state is None:
                return None
            found |= state
        return found

    def _of(self, process: Process, parent: Parent) -> State | None:
        if parent.tail == 0:  # It handed on what it began with.
            if parent.gid.epoch == GENESIS_EPOCH:
                return {}
            record = self.world.control.record(process, parent.gid)
            return self.of_parents(process, record) if record is not None else None
        parent = parent._replace(tail=max(1, parent.tail - 1)) if self.early else parent
        if (mine := process.state_at(parent)) is not None:
            return mine
        if self.forgets:
            return {}
        for other in self.world.control.in_reach(process):
            if (state := other.state_at(parent)) is not None:
                self.world.seen.note("a state of another process")
                return state
        return None
