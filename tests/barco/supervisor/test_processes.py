"""The policy of restarts, which is told the time."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from barco import limits
from barco.errors import OperatorError
from barco.model.options import WorkerOptions
from barco.protocol import messages
from barco.supervisor.children.channel import Channel
from barco.supervisor.children.starts import Child, Starter
from barco.supervisor.processes import Keeper, Launch, Life, RestartPolicy

NOTHING = dict.fromkeys(("ready", "gone"), lambda worker: None)


def test_back_off_doubles_up_to_its_limit() -> None:
    policy = RestartPolicy()
    now, delays = 0.0, []
    for _ in range(9):
        delays.append(policy.died(now, lived=10.0))
        now += 10.0
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_a_long_life_resets_it() -> None:
    policy = RestartPolicy()
    for now in (0.0, 10.0, 20.0):
        policy.died(now, lived=10.0)
    assert policy.died(100.0, lived=80.0) == 0.1


def test_five_deaths_in_thirty_seconds_are_a_loop() -> None:
    policy = RestartPolicy()
    times = [0.0, 7.0, 14.0, 21.0, 29.9]
    assert [policy.died(now, 7.0) is None for now in times] == [False] * 4 + [True]


def test_five_deaths_in_more_than_that_are_not() -> None:
    policy = RestartPolicy()
    times = [0.0, 8.0, 16.0, 24.0, limits.CRASH_LOOP_SECONDS + 0.1, 38.2]
    assert all(policy.died(now, 8.0) is not None for now in times)


def test_who_is_silent_for_long_after_it_was_killed_hangs() -> None:
    """As a process does that waits for a disk: a SIGKILL is no sign of life, nor an end."""

    async def run() -> None:
        launch = Launch(
            worker=0, starter=Starter([], -1), options=lambda fd: launch.options(fd), inherit=[]
        )
        keeper = Keeper(launch, **NOTHING, writable=lambda: None, message=lambda *_: None)
        assert not keeper.hangs(1e9)  # Nobody is there.
        ours, theirs = socket.socketpair()
        with theirs, subprocess.Popen(["sleep", "60"]) as process:  # noqa: ASYNC220
            ours.setblocking(False)
            keeper.life = life = Life(process, await Channel.open(ours), 100.0)
            silence = limits.HEARTBEAT_SILENCE_SECONDS_MAX
            starts = limits.WORKER_START_SECONDS_MAX + silence
            assert not keeper.hangs(100.0 + starts) and keeper.hangs(100.1 + starts)
            life.ready, life.heard = True, 200.0
            assert not keeper.hangs(200.0 + 2 * silence) and keeper.hangs(200.1 + 2 * silence)
            process.kill()
            life.channel.close()

    asyncio.run(run())


def test_what_is_told_while_it_is_being_started_waits_for_it() -> None:
    """Its options are written by then, and there is nobody yet: that all brokers can read headers
    was told to no leader that was just being forked, which refused them for good."""

    async def run() -> None:
        its_end: list[socket.socket] = []

        async def start(options: WorkerOptions, inherit: Sequence[int]) -> Child:
            its_end.append(socket.socket(fileno=os.dup(inherit[0])))
            keeper.send({"type": messages.FORMAT, "format": 2})
            await asyncio.sleep(0)
            return process

        written: Any = None
        launch = Launch(worker=0, starter=Starter([], -1), options=lambda fd: written, inherit=[])
        keeper = Keeper(launch, **NOTHING, writable=lambda: None, message=lambda *_: None)
        keeper.send({"type": messages.LOG, "level": "debug"})  # Its options say so.
        with subprocess.Popen(["sleep", "60"]) as process:  # noqa: ASYNC220
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Starter, "start", lambda _, *given: start(*given))
                life = await keeper._start(asyncio.get_running_loop())
            assert life is not None
            its_end[0].setblocking(False)
            there = await Channel.open(its_end[0])
            life.send({"type": messages.DRAIN})
            heard = there.messages()
            for kind in (messages.FORMAT, messages.DRAIN):
                assert (await anext(heard))["type"] == kind
            process.kill()
            life.channel.close()
            there.close()

    asyncio.run(run())


def test_a_stop_while_it_is_being_started_is_no_failure() -> None:
    """What it inherits is closed then: `Bad file descriptor` was the broker's last word, with 1."""

    async def run(*, stopped: bool) -> None:
        async def start() -> Child:
            if stopped:
                keeper.stop()
            raise OperatorError("cannot start worker 0: Bad file descriptor")

        options: Any = None
        launch = Launch(worker=0, starter=Starter([], -1), options=lambda fd: options, inherit=[])
        keeper = Keeper(launch, **NOTHING, writable=lambda: None, message=lambda *_: None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Starter, "start", lambda *_: start())
            await keeper.run()

    asyncio.run(run(stopped=True))
    with pytest.raises(OperatorError):
        asyncio.run(run(stopped=False))
