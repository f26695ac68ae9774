"""A range is split while it is written to: three real brokers, and producers that send again what
was not acknowledged. Each event is stored once, in its order, whichever process has its slice."""

import http.client
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import splitting
from growing import local_cluster
from splitting import tell
from test_history import key_of, split, until

ENDINGS = {200, 204, 500, 503}
"""Stored, stored before, not known, surely not written. A process that has lost a slice says
nothing else."""


class Writer(threading.Thread):
    """Writes to one slice, by all brokers in turn, one event after the other."""

    def __init__(self, hosts: tuple[str, ...], slice_: int) -> None:
        super().__init__(daemon=True)
        self.hosts, self.slice = hosts, slice_
        self.path = f"/v1/topic/t/messages?partitionKey={key_of(slice_)}"
        self.acknowledged = self.turn = 0
        self.answers: Counter[int] = Counter()
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            status = self._send(self.hosts[self.turn % len(self.hosts)])
            self.answers[status] += 1
            if status in (200, 204):
                self.acknowledged += 1
            else:
                self.turn += 1
                self.ending.wait(0.02)

    def _send(self, host: str) -> int:
        headers = {
            "Producer-Id": f"writer-{self.slice}",
            "Producer-Epoch": "0",
            "Producer-Seq": str(self.acknowledged),
        }
        connection = http.client.HTTPConnection(host, 9251, timeout=30)
        try:
            connection.request("POST", self.path, b"%d" % self.acknowledged, headers)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    made = local_cluster(tmp_path, Path(splitting.__file__).resolve())
    for ordinal in range(3):
        made.wait_in_sync(ordinal)
    yield made
    made.stop()


def ends(cluster: Any, ordinal: int, worker: int) -> dict[int, int]:
    """What a process says of its slices."""
    answer = tell(cluster.data(ordinal), worker, op="topics", args={"topic": "t"})
    assert not (isinstance(answer, dict) and "refused" in answer), answer
    return {index: end for index, _, end, _ in answer["t"]["streams"]} if answer else {}


def values(host: str, slice_: int) -> list[bytes]:
    """All events of a slice whose history is there, from the first on."""
    connection = http.client.HTTPConnection(host, 9250, timeout=30)
    found: list[bytes] = []
    cursor = "earliest"
    while True:
        path = f"/v1/topic/t/slices/{-(2**63)}/{slice_}/events?from={cursor}"
        connection.request("GET", path, headers={"Accept": "application/x-ndjson"})
        response = connection.getresponse()
        body = response.read()
        assert response.status in (200, 204), body
        lines = [json.loads(line) for line in body.splitlines()]
        if not lines:
            return found
        found += [b"%d" % line["value"] for line in lines]
        cursor = response.headers["Barco-Next-Cursor"]


def test_each_event_once_while_slices_move(cluster: Any) -> None:
    writers = [Writer(cluster.hosts, slice_) for slice_ in range(8)]
    for writer in writers:
        writer.start()
    until("all write", lambda: all(writer.acknowledged > 20 for writer in writers))
    split(cluster)
    before = [writer.acknowledged for writer in writers]
    until(
        "all go on",
        lambda: all(w.acknowledged > n + 20 for w, n in zip(writers, before, strict=True)),
    )
    for writer in writers:
        writer.ending.set()
    for writer in writers:
        writer.join()
        assert writer.answers.keys() <= ENDINGS, writer.answers
    sent = {writer.slice: writer.acknowledged for writer in writers}
    assert ends(cluster, 0, 0) == {slice_: sent[slice_] for slice_ in range(4)}
    assert ends(cluster, 1, 3) == {slice_: sent[slice_] for slice_ in range(4, 8)}
    for slice_ in range(4):  # The history of these is where it was.
        numbers = [b"%d" % number for number in range(sent[slice_])]
        assert values(cluster.hosts[0], slice_) == numbers
