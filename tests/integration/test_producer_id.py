"""Producer ids that stay: what is known of them, and who begins under one again."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from running import RunningBroker
from test_pipeline import endpoint

import barco
from barco.errors import StaleProducerError
from barco.supervisor.tied import start_tied

PROGRAM = """
import sys, barco
with barco.Producer(sys.argv[1], producer_id="loader", linger_ms=0) as producer:
    print("begins", flush=True)
    for n in range(10**9):
        producer.send("t", f"{sys.argv[2]}-{n}", key=f"k{n % 5}").result(60)
        if n % 50 == 49:
            print(n, flush=True)
"""


def known(broker: RunningBroker, name: str, topic: str = "t") -> dict[int, tuple[int, int]]:
    answer = broker.request("GET", f"/v1/topic/{topic}/producers/{name}")
    assert answer.status == 200, answer
    return {each["index"]: (each["epoch"], int(each["lastSeq"])) for each in answer.json["slices"]}


def test_what_was_taken_last_of_an_id(broker: RunningBroker) -> None:
    assert known(broker, "mine") == {}
    for epoch, seq, status in ((7, 0, 200), (7, 1, 200), (7, 1, 204), (7, 3, 409), (8, 0, 200)):
        headers = {"Producer-Id": "mine", "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}
        path, query = "/v1/topic/t/messages", {"slice": 5}
        answer = broker.request("POST", path, query, body=b"{}", headers=headers)
        assert answer.status == status, answer
        if seq == 1:
            assert known(broker, "mine") == {5: (7, 1)}
    assert known(broker, "mine") == {5: (8, 0)} and known(broker, "other") == {}
    assert known(broker, "mine", "u") == {}
    broker.kill()
    broker.restart()
    assert known(broker, "mine") == {5: (8, 0)}, "the table is part of the log"
    assert broker.request("GET", f"/v1/topic/t/producers/{'x' * 65}").status == 400
    assert broker.request("GET", "/v1/topic/__notes/producers/x").status in (
        400,
        403,
    )  # It is the broker's own.


def test_who_begins_under_an_id_fences_whoever_had_it(broker: RunningBroker) -> None:
    given: dict[str, Any] = {"producer_id": "one", "linger_ms": 0}
    with barco.Producer(endpoint(broker), **given) as first:
        first.send("t", b"1", key=b"k").result(60)
        first.send("t", b"no key").result(60)
        with barco.Producer(endpoint(broker), **given) as second:
            second.send("t", b"2", key=b"k").result(60)
            with pytest.raises(StaleProducerError):
                first.send("t", b"3", key=b"k").result(60)
            second.send("t", b"4", key=b"k").result(60)
    values = [each.value for each in barco.read("t", endpoint(broker)) if each.key]
    assert values == [b"1", b"2", b"4"]
    with pytest.raises(ValueError, match="producer_id"):
        barco.Producer(endpoint(broker), producer_id="a b")


def test_a_producer_that_is_killed_goes_on(broker: RunningBroker) -> None:
    acknowledged: dict[str, int] = {}
    for run in ("a", "b", "c"):
        process = start_tied(
            [sys.executable, "-c", PROGRAM, endpoint(broker), run],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        until = time.monotonic() + 120
        for line in process.stdout:
            assert time.monotonic() < until
            acknowledged[run] = 0 if line == "begins\n" else int(line)
            if acknowledged[run] >= 199:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    found: dict[tuple[bytes | None, str], list[int]] = {}
    runs: dict[bytes | None, list[str]] = {}
    for event in barco.read("t", endpoint(broker)):
        run, _, number = event.value.decode().partition("-")
        found.setdefault((event.key, run), []).append(int(number))
        runs.setdefault(event.key, []).append(run)
    for (_, run), numbers in found.items():
        assert numbers == sorted(set(numbers)), "once, and in order"
        assert numbers[-1] >= acknowledged[run] - 5
    assert all(each == sorted(each) for each in runs.values()), "none comes in behind its heir"
    assert {epoch for epoch, _ in known(broker, "loader").values()} == {2}
