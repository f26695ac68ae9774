"""What a driver decides (`barco.cluster.logs.driving`), run as it is: each rule taken away is seen.

What only the core makes harmless as well (that it lets a group pass which does not follow, that
a leader takes none) is in `tests/barco/cluster/test_driving.py`, with the order of steps, the role
and the places of groups.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from barco.cluster.logs.driving import FENCED, LEADER, Course, Role
from barco.cluster.logs.logs import Logs
from barco.cluster.replica.replica import Replica
from barco.cluster.state.effects import Commit
from barco.cluster.state.events import Event
from barco.model.generation import Generation, Gid

from .mutants import Mutant
from .plan import run

SECONDS = 30.0
SEEDS_MAX = 400


class NewsAfter(Course):
    """The machine decides on what was: the core's news come behind what happens."""

    def _run(self, news: Callable[[], Iterable[Event]], step: Callable[[Event, Any], None]) -> None:
        super()._run(list[Event], step)
        super()._run(news, step)


class Deaf(Course):
    """What waits is told, whatever has ended."""

    def end(self) -> None:
        pass


class ShownAtOnce(Role):
    """What recovery restored is shown."""

    def adopt(self, current: Gid, tail: int, ended: int | None) -> None:
        pass


class ShownAfterAnother(Role):
    """What recovery restored is shown when something else is followed: so the driver had it."""

    def follows(self, generation: Generation, current: Gid | None) -> None:
        super().follows(generation, current)
        if generation.gid != current:
            self.restored = None


class WithoutState(Role):
    """A generation is shown before its first group is here."""

    def follows(self, generation: Generation, current: Gid | None) -> None:
        super().follows(generation, current)
        self.unshown = None


class AnyCommit(Role):
    """Whatever is committed, of whichever generation, all is shown."""

    def commits(self, effect: Commit, current: Gid | None) -> bool:
        self.unshown = self.restored = None
        return super().commits(effect, current)


class Lacking(Role):
    """What is shown may lack groups before it, or the list that names them."""

    def readable(self, replica: Replica, logs: Logs) -> bool:
        hidden = self._hides(logs.current) or self.generation is None
        return not hidden and (self.name in (LEADER, FENCED) or self.behind(replica, logs))

    def behind(self, replica: Replica, logs: Logs) -> bool:
        return not logs.sealing


class Unlisted(Lacking):
    def behind(self, replica: Replica, logs: Logs) -> bool:
        return not replica.catching_up()


class LackingIsRead(Role):
    """What lacks groups here is looked for here."""

    def unread(self, replica: Replica, logs: Logs) -> frozenset[Gid]:
        return super().unread(replica, logs) - replica.lacking()


class SealingIsRead(Role):
    """What all groups have come of is looked for here, though no list has it yet."""

    def unread(self, replica: Replica, logs: Logs) -> frozenset[Gid]:
        return super().unread(replica, logs) - replica.arrived() - logs.sealing


class FollowsLater(Role):
    """It shows, for one event more, what it showed before it followed."""

    def follows(self, generation: Generation, current: Gid | None) -> None:
        name, unshown = self.name, self.unshown
        super().follows(generation, current)
        self.name, self.unshown = name, unshown


class LeadsEarly(Role):
    """It leads before the core has opened anything."""

    def leads(self, generation: Generation) -> None:
        super().leads(generation)
        self.name, self.unshown, self.restored = LEADER, None, None

    def opened(self, generation: Generation) -> bool:
        return True


class NeverLooks(Logs):
    """Nobody is told that the core rests."""

    def waits(self) -> bool:
        return False


ALONE = {"one": True, "native": True, "liveness": True}
"""Where the core tells of no group."""
MUTANTS = (
    (Mutant(31, "news after the step", course=NewsAfter), 16, "I5", {"native": True}),
    (Mutant(32, "told after the end", course=Deaf), 9, "what is over", {}),
    (Mutant(33, "restored, shown at once", role=ShownAtOnce), 4, "D7", {}),
    (Mutant(34, "restored, shown later", role=ShownAfterAnother), 2, "D7", {"forget": True}),
    (Mutant(35, "shown without a state", role=WithoutState), 0, "D7", {}),
    (Mutant(36, "shown by any commit", role=AnyCommit), 5, "D7", {"expire": True}),
    (Mutant(37, "shown with a gap", role=Lacking), 5, "D7", {"expire": True}),
    (Mutant(38, "shown and not listed", role=Unlisted), 5, "D7", {"expire": True}),
    (Mutant(39, "read with a gap", role=LackingIsRead), 5, "D7", {"expire": True}),
    (Mutant(40, "read and not listed", role=SealingIsRead), 4, "D7", {"expire": True}),
    (Mutant(41, "follows later", role=FollowsLater), 0, "D7", {}),
    (Mutant(42, "leads early", role=LeadsEarly), 2, "D7", {}),
    (Mutant(43, "nobody looks", logs=NeverLooks), 38, "liveness", ALONE),
)
"""With the seed that is known to catch it, and by what."""


def found_in(seed: int, mutant: Mutant | None, how: dict[str, Any]) -> str:
    how = {"native": False, "liveness": False, **how}
    try:
        found = run(seed, SECONDS, mutant=mutant, **how).violation
    except AssertionError as error:  # A machine, or a broker, notices it itself.
        return str(error)
    return str(found) if found is not None else ""


@pytest.mark.parametrize(
    ("mutant", "known", "by", "how"), MUTANTS, ids=lambda each: getattr(each, "name", "")
)
def test_mutant_is_caught(mutant: Mutant, known: int, by: str, how: dict[str, Any]) -> None:
    for seed in (known, *range(SEEDS_MAX)):
        if by in found_in(seed, mutant, how):
            assert not found_in(seed, None, how), f"the true driver, seed {seed}"
            return
    pytest.fail(f"mutant {mutant.number} survives: {mutant.name}")
