"""What the driver does when its machine breaks a rule of its own."""

import asyncio
from types import SimpleNamespace
from typing import Any

from barco.cluster.state.core import Settings
from barco.cluster.state.events import Tick
from barco.model.generation import genesis
from barco.workers.replication.driver import Driver
from barco.workers.replication.wire import identity


class Broken:
    """A machine in which an invariant does not hold."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, now: float, event: object) -> list[Any]:
        self.steps += 1
        raise AssertionError("succ(g) is decided once (I1)")


def test_a_broken_rule_ends_the_process() -> None:
    """A callback's exception is only logged by the event loop; the replica must not go on."""
    fatal: list[str] = []
    core = SimpleNamespace(intake_news=lambda: None, disarm_intake=lambda: None)

    async def main() -> None:
        driver = Driver(
            Settings(me=identity(0, "ab" * 16), session=1, ranges=(genesis(0, 8, (0, 1, 2)),)),
            {},
            reactor=core,  # type: ignore[arg-type]
            store=SimpleNamespace(lineage=None),  # type: ignore[arg-type]
            bulk=SimpleNamespace(),  # type: ignore[arg-type]
            group_bytes_max=4096,
            on_lead=lambda generation: None,
            on_follow=lambda generation: None,
            on_stop=lambda reason: None,
            fatal=fatal.append,
        )
        driver._loop = asyncio.get_running_loop()
        driver._machine = machine = Broken()  # type: ignore[assignment]
        driver.post(Tick())
        driver.post(Tick())
        assert machine.steps == 1, "nothing more is heard"
        assert len(fatal) == 1 and "succ(g) is decided once" in fatal[0]

    asyncio.run(main())
