"""One rule of growing less each: the machine's, or that of who carries it."""

from dataclasses import dataclass
from typing import Any

from barco.cluster.state.held import Held
from barco.model.generation import Generation, Kind, Successor

from ..mutants import EpochLookedUp, EpochOwnPlusOne, SplitInTwo, Unchecked


class BelievesOne(Unchecked):
    """P8: one member's word on what was decided elsewhere is enough."""

    def _is_sure(self, voices: frozenset[int], parent: Generation) -> bool:
        return bool(voices)


class MergesEarly(Unchecked):
    """I10: the range behind is taken in before its generation is sealed."""

    def _handed(self, token: int, taker: Generation) -> Held | None:
        held = self._current.get(token)
        if held is None or held.decided is not None or held.concerned:
            return super()._handed(token, taker)
        held.decided = Successor(held.tail, Kind.HANDOFF, ())
        return held


class OpensAccepted(Unchecked):
    """P3: what one member has accepted is used as if it were decided."""

    def _voted(self, held: Held) -> None:
        super()._voted(held)
        if held.accepted is not None and held.decided is None:
            self._learned(held.generation.gid, held.accepted[1])


@dataclass(frozen=True)
class Mutant:
    """One rule less."""

    name: str
    replica: Any = Unchecked
    sizes: tuple[int, ...] = (3, 4, 6)
    lies: bool = False
    """A broker tells joiners what was not decided."""
    reads_early: bool = False
    """A reader goes on to a child before it has read its parent to the end."""
    forgets_states: bool = False
    """Who does not have a state leads without one."""
    one_state: bool = False
    """A join begins with the state of its first parent alone."""
    early_states: bool = False
    """A state is that of a group before the last."""


MUTANTS = (
    Mutant("a joiner believes one word", BelievesOne, lies=True),
    Mutant("merge active before the donor is sealed", MergesEarly),
    Mutant("a successor opens when one has accepted it", OpensAccepted),
    Mutant("a successor readable early", reads_early=True),
    Mutant("leads without state", forgets_states=True),
    Mutant("what was handed over is left out of the union", one_state=True, sizes=(3, 4, 3, 4)),
    Mutant("a state at another place than T", early_states=True),
    Mutant("a child's epoch from a look-up of history", EpochLookedUp),
    Mutant("epoch = own + 1", EpochOwnPlusOne, sizes=(3, 4, 3, 4)),
    Mutant("a split in two registers", SplitInTwo),
)
