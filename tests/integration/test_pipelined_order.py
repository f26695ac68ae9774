"""Slices change hands while plain clients pipeline: no producer ids, nothing is sent again. What
was acknowledged stands in the order of its calls, whoever the calls were with at the time."""

import itertools
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import splitting
from growing import local_cluster
from splitting import tell
from test_history import END, OLD, key_of, until
from test_moving_slices import values

DEPTH = 32
"""Calls of one client that are under way at once."""

MOVES = 30
"""Each is a chance for a call to be overtaken: without what keeps them in order (`abroad` in
native/broker/park.c) one was in two of four runs."""

PACE_SECONDS = 0.0005
"""Between two calls of a client: nobody is to be kept from the processor."""

SLICES = (0, 2, 3, 5)
WRITER = 1_000_000
"""The numbers of one client, and of the next."""


class Pipe(threading.Thread):
    """One connection, always with as many calls under way."""

    def __init__(self, number: int, host: str, slice_: int) -> None:
        super().__init__(daemon=True)
        self.first, self.address, self.slice = number * WRITER, (host, 9250), slice_
        self.path = f"/v1/topic/t/messages?partitionKey={key_of(slice_)}"
        self.ending = threading.Event()
        self.acknowledged: list[int] = []
        self.answers: Counter[int] = Counter()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with socket.create_connection(self.address, timeout=30) as end:
                self._pipe(end)
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def _pipe(self, end: socket.socket) -> None:
        answers, sent = end.makefile("rb"), DEPTH
        end.sendall(b"".join(self._call(number) for number in range(DEPTH)))
        answered = 0
        while answered < sent:
            status = self._answer(answers)
            self.answers[status] += 1
            if status == 200:
                self.acknowledged.append(self.first + answered)
            answered += 1
            if not self.ending.wait(PACE_SECONDS):
                end.sendall(self._call(sent))
                sent += 1

    def _call(self, number: int) -> bytes:
        body = b"%d" % (self.first + number)
        head = f"POST {self.path} HTTP/1.1\r\nHost: {self.address[0]}\r\n"
        return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def _answer(self, answers: Any) -> int:
        status, length = int(answers.readline().split()[1]), 0
        while line := answers.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        answers.read(length)
        return status


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Any]:
    made = local_cluster(tmp_path, Path(splitting.__file__).resolve())
    for ordinal in range(3):
        made.wait_in_sync(ordinal)
    yield made
    made.stop()


def leader(cluster: Any) -> tuple[int, list[Any]]:
    """Who leads the first range, and what its three processes say of themselves."""

    def look() -> tuple[int, list[Any]] | None:
        said = [tell(cluster.data(at), at) for at in range(3)]
        found = [at for at in range(3) if said[at] and said[at][2] == "leader"]
        return (found[0], said) if len(found) == 1 else None

    found: tuple[int, list[Any]] = until("somebody leads", look)
    return found


def move(cluster: Any) -> None:
    """The next one leads the first range, or the owner has it back, as it does after a while."""
    before, _ = leader(cluster)

    def moved() -> bool:
        at, said = leader(cluster)
        if at == before:
            to = (at + 1) % 3
            members = [[each, said[each][1]] for each in range(3)]
            child = {"token": OLD, "end": END, "leader": [to, said[to][0]], "members": members}
            tell(cluster.data(at), at, move=child)
        return at != before

    until("it has moved", moved)


def test_no_call_overtakes_another(cluster: Any) -> None:
    hosts = [(host, slice_) for host in cluster.hosts for slice_ in SLICES]
    pipes = [Pipe(number, *each) for number, each in enumerate(hosts)]
    for pipe in pipes:
        pipe.start()
    until("all write", lambda: all(len(pipe.acknowledged) > DEPTH or pipe.error for pipe in pipes))
    assert not any(pipe.error for pipe in pipes), [pipe.error for pipe in pipes]
    for _ in range(MOVES):
        before = [len(pipe.acknowledged) for pipe in pipes]
        move(cluster)
        until(
            "all go on",
            lambda before=before: all(
                len(pipe.acknowledged) > n or pipe.error
                for pipe, n in zip(pipes, before, strict=True)
            ),
        )
    for pipe in pipes:
        pipe.ending.set()
    for pipe in pipes:
        pipe.join()
        assert pipe.error is None and pipe.answers.keys() <= {200, 500, 503}, pipe.answers
    stored = {slice_: [int(each) for each in values(cluster.hosts[0], slice_)] for slice_ in SLICES}
    for pipe in pipes:
        acknowledged = set(pipe.acknowledged)
        found = [each for each in stored[pipe.slice] if each in acknowledged]
        overtaken = [(a, b) for a, b in itertools.pairwise(found) if a > b]
        assert not overtaken and found == pipe.acknowledged, overtaken[:5]
