"""No broker is taken to be down because the processors are busy.

BARCO_TEST_PRESSURE_SECONDS=60 makes it the long one.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gossiping import host

PROCESS = Path(__file__).with_name("gossip_process.py")
SECONDS = float(os.environ.get("BARCO_TEST_PRESSURE_SECONDS", "6"))
BUSY = "while True: pass"


def free_ports(brokers: int) -> list[str]:
    ports = []
    for ordinal in range(brokers):
        with socket.create_server((host(ordinal), 0)) as listener:
            ports.append(str(listener.getsockname()[1]))
    return ports


def start(ordinal: int, ports: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROCESS), str(ordinal), *ports]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    result: dict[str, Any] = json.loads(process.stdout.readline())
    return result


@pytest.mark.chaos  # It takes the processors from whatever runs beside it.
def test_busy_processors_make_nobody_down() -> None:
    ports = free_ports(3)
    brokers = [start(ordinal, ports) for ordinal in range(3)]
    cores = sorted(os.sched_getaffinity(0))
    busy = []
    try:
        for broker in brokers:
            assert broker.stdout is not None and broker.stdout.readline() == "started\n"
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2 * len(cores))]
        time.sleep(SECONDS)
        # Stopped for a moment, as by a debugger: long enough to be noticed, too short to be down.
        brokers[2].send_signal(signal.SIGSTOP)
        time.sleep(min(1.5, SECONDS / 4))
        brokers[2].send_signal(signal.SIGCONT)
        time.sleep(SECONDS / 2)
        reports = [told(broker) for broker in brokers]
    finally:
        for process in (*busy, *brokers):
            process.kill()
            process.wait()
    print(reports)
    assert [report["downs"] for report in reports] == [0, 0, 0]
    for report in reports:
        assert set(report["states"].values()) <= {"alive", "suspect"}
