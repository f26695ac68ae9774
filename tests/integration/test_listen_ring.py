"""Listening in a ring of three: at any broker to all slices, and on at another one when it dies."""

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hearing import Listening, until
from joining import JoinedCluster, three

pytestmark = pytest.mark.chaos

WHOLE = "/v1/topic/t/events"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


class Writer:
    """Writes 0, 1, 2, ... to all slices by turns of a key; knows which were acknowledged."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._done = threading.Event()
        self.stored: set[int] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._done.is_set():
            connection = http.client.HTTPConnection(self._host, 9251, timeout=30)
            try:
                path = f"/v1/topic/t/messages?partitionKey={number % 97}"
                connection.request("POST", path, b"%d" % number)
                if connection.getresponse().status == 200:
                    self.stored.add(number)
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            number += 1
            self._done.wait(0.002)

    def stop(self) -> set[int]:
        self._done.set()
        self._thread.join(60)
        return self.stored


def test_on_at_another_broker_none_missing_and_none_twice(cluster: JoinedCluster) -> None:
    writer = Writer(cluster.hosts[0])
    until(lambda: len(writer.stored) > 20)
    # Whole from the beginning, at two brokers; one of them dies.
    stays = Listening(cluster.hosts[1], 9252, f"{WHOLE}?from=earliest")
    dies = Listening(cluster.hosts[2], 9252, f"{WHOLE}?from=earliest")
    until(lambda: len(dies.heard) > 100 and len(stays.heard) > 100)
    cluster.kill(2)
    until(dies.ended.is_set)
    before = list(dies.heard)
    again = Listening(cluster.hosts[0], 9252, WHOLE, before[-1].id)
    assert again.status == 200, again.body
    known = len(writer.stored)
    until(lambda: len(writer.stored) > known + 300)
    stored = writer.stop()
    for found in ([stays], [dies, again]):

        def values(found: list[Listening] = found) -> list[int]:
            return [each.value for part in found for each in list(part.heard)]

        until(lambda values=values: stored <= set(values()))
        heard = values()
        assert len(heard) == len(set(heard)), "none twice"
        by_slice: dict[tuple[str, int], int] = {}
        for part in found:
            for each in part.heard:
                key = (each.line["token"], each.line["rangeIndex"])
                offset = int(each.line["offset"])
                assert offset == by_slice.get(key, 0), (key, offset, by_slice.get(key))
                by_slice[key] = offset + 1
    stays.close()
    again.close()
