"""Processes go to their places when their number changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barco.model.placement import Placement
from barco.model.ranges import HeldRange, ProcessTable, first_table, token_of_slice
from barco.model.replicas import Replicas
from barco.supervisor import machine
from barco.supervisor.machine import Cores

CUT = Placement(3, 8)


def more(table: ProcessTable, first: int, *members: int) -> ProcessTable:
    held = HeldRange(
        token=token_of_slice(CUT, first),
        first=first,
        slices=4,
        number=0,
        members=members,
        genesis=False,
    )
    return table.with_range(held)


def test_everybody_has_a_place_by_the_table_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leads has a core of its own; whoever is there already moves, once."""
    moved: list[tuple[int, int]] = []
    monkeypatch.setattr(machine, "_pin", lambda pid, core: moved.append((pid, core)))
    cores, table = Cores(0, 0, range(10, 16)), first_table(Replicas(CUT, 1), 0)
    pids = {0: 100, 1: 101, 2: 102}
    cores.move(table, pids)
    assert moved == [(100, 10), (101, 11), (102, 12)]
    cores.move(table, pids)
    assert len(moved) == 3, "they are there"
    table = more(table, 4, 0, 1, 2)  # A second one that leads.
    moved.clear()
    cores.move(table, pids | {3: 103})
    assert moved == [(101, 12), (102, 13), (103, 11)]
    assert [cores.of(table, number) for number in range(4)] == [10, 12, 13, 11]
    moved.clear()
    cores.move(table, pids | {1: 201, 3: 103})
    assert moved == [(201, 12)], "another life of one"


def test_all_threads_of_a_process_move() -> None:
    both = sorted(os.sched_getaffinity(0))
    program = (
        "import sys, threading\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        threads = [int(each.name) for each in Path(f"/proc/{process.pid}/task").iterdir()]
        assert len(threads) == 2
        for core in (both[-1], both[0]):
            machine._pin(process.pid, core)
            assert [os.sched_getaffinity(each) for each in threads] == [{core}] * 2
        process.communicate(b"")
    machine._pin(process.pid, both[0])  # It is gone, and no matter.
