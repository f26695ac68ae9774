"""The state of a parent's end, from whoever has its groups (`workers/replication/states.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barco.cluster.state.kin import shares
from barco.model.generation import Generation, Parent

if TYPE_CHECKING:
    from .process import Process, State
    from .world import GrowthWorld


class States:
    """What a process gets when it asks for one."""

    def __init__(self, world: GrowthWorld) -> None:
        self.world = world
        self.forgets = getattr(world.mutant, "forgets_states", False)
        self.early = getattr(world.mutant, "early_states", False)
        self.one = getattr(world.mutant, "one_state", False)

    def of_parents(self, process: Process, generation: Generation) -> State | None:
        """The union of what comes of each parent, as the carrier asks for it; None: nobody in reach
        has one of them, or it is not known whose they are."""
        assert process.replica is not None, "who makes one is there"
        found: State = {}
        parts = shares(process.replica.journal(), generation)
        for share in parts[:1] if self.one else parts:
            state = self._of(process, share.parent)
            if state is None:
                return None
            slices = self.world.slices_between(share.token, share.end)
            found |= {number: count for number, count in state.items() if number in slices}
            assert found.keys() >= set(slices) or self.forgets, "each gives all that comes of it"
        known = sum(len(self.world.slices_between(*share[1:])) for share in parts)
        if parts and known < len(self.world.slices_of(generation)):
            self.world.seen.note("whose a part is, is not known")
            return None
        return found

    def _of(self, process: Process, parent: Parent) -> State | None:
        assert parent.tail > 0, "one without a group hands on its own parents"
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
