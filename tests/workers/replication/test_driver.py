"""The driver, before it takes part, and at its end."""

import asyncio
from types import SimpleNamespace

import pytest

from barco.cluster.state import events as ev
from barco.cluster.state.core import Settings
from barco.cluster.state.effects import Send, Stop
from barco.model.generation import genesis
from barco.workers.replication.driver import Driver
from barco.workers.replication.wire import identity

SETTINGS = Settings(me=identity(0, "ab" * 16), session=7, ranges=(genesis(0, 100, (0, 1, 2)),))


def driver_of(reactor=None, fatal=lambda reason: None):
    return Driver(
        SETTINGS,
        {},
        reactor=reactor or SimpleNamespace(),
        store=SimpleNamespace(lineage=None),
        bulk=SimpleNamespace(),
        group_bytes_max=4096,
        fatal=fatal,
        **dict.fromkeys(("on_lead", "on_follow", "on_stop"), lambda *_: None),
    )


def test_siblings_may_ask_before_it_has_started():
    """Its socket is open a moment earlier: /status of the whole broker failed on it."""
    driver = driver_of()
    assert driver.status() == {
        "role": "starting",
        "catchingUp": True,
        "writable": False,
        "uncleanEnds": 0,
        "suspect": False,
    }
    assert not driver.readable() and not driver.serves_consumers()
    assert driver.stats()["replicas_leading"] == 0


class Machine:
    """Asks for three things in each step."""

    def __init__(self):
        self.steps = 0

    def step(self, now, event):
        self.steps += 1
        return [Send(1, "first"), Send(1, "bad"), Stop("the last")]

    def deadline(self):
        return 0.0


@pytest.mark.parametrize("error", [ValueError("bug"), KeyError(1), OSError(5, "x"), MemoryError()])
@pytest.mark.parametrize("where", ["effect", "step", "timer", "upcall"])
def test_nothing_is_done_after_an_exception(error, where):
    """The effects behind it were dropped, and the next step went on as if they had been done."""
    fatal, sent = [], []
    core = SimpleNamespace(intake_news=lambda: None, disarm_intake=lambda: sent.append("disarmed"))

    def fail(*_):
        raise error

    async def main():
        driver = driver_of(core, fatal.append)
        driver._loop = asyncio.get_running_loop()
        driver._machine = machine = Machine()
        driver._links = {
            1: SimpleNamespace(
                send=lambda message: fail() if message == "bad" else sent.append(message)
            )
        }
        if where == "step":
            machine.step = fail
        elif where == "timer":
            machine.step, machine.deadline = lambda now, event: [], fail
        if where == "upcall":
            driver.logs.step = fail
            driver.upcall(("landed", 1, 2, 3))
        else:
            driver.post(ev.Tick())
        before = machine.steps
        driver.post(ev.Tick())
        driver.upcall(("landed", 1, 2, 3))
        assert machine.steps == before, "it is not told anything any more"

    asyncio.run(main())
    assert len(fatal) == 1 and repr(error) in fatal[0], fatal
    assert sent == (["first", "disarmed"] if where == "effect" else ["disarmed"])
