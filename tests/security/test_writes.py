"""Staged writes under attack: bodies that lie, floods that are never committed, hostile names."""

import json
import os
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from attacked import REQUEST_BYTES_MAX, AttackedBroker, MiB
from wire import head

from barco import _native

BATCH = "application/vnd.barco.batch"
OWN = "topic=staged&slice=0&attempt=a&seq=0"


def put(path: str, body: bytes, kind: str = BATCH, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return head("PUT", path, [f"Content-Length: {size}", f"Content-Type: {kind}"]) + body


def ask(attacked: AttackedBroker, *pieces: bytes, shard: int = 0) -> int:
    with attacked.shard_wire(shard) as wire:
        wire.send(*pieces)
        return wire.response().status


def stored(attacked: AttackedBroker) -> int:
    answer = attacked.request("GET", "/v1/topics/staged")
    return 0 if answer.status == 404 else int(answer.json["events"])


def test_batches_that_lie(attacked: AttackedBroker) -> None:
    good = _native.batch_encode([b"x" * 100] * 50, compress=False)
    path = f"/v1/writes/lies/0/staged?{OWN}"
    for at in range(0, 96, 4):
        for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
            lying = bytearray(good)
            struct.pack_into("<I", lying, at, value)
            if bytes(lying) != good:
                assert ask(attacked, put(path, bytes(lying))) in (200, 400, 413)
        attacked.request("DELETE", "/v1/writes/lies/0", shard=0)
    for cut in (0, 1, 31, 32, 100, len(good) - 1):
        assert ask(attacked, put(path, good[:cut])) == 400
    # Nothing compresses better than LZ4 can: what says so is refused before memory is taken.
    bomb = bytearray(_native.batch_encode([b"\0" * 1_000_000]))
    struct.pack_into("<I", bomb, 32 + 16 + 4, 60 * MiB)
    assert ask(attacked, put(path, bytes(bomb))) == 400
    two = _native.batch_encode([b"x" * (700 << 10)] * 2)
    assert ask(attacked, put(path, two)) in (400, 413)
    attacked.check_memory()
    assert stored(attacked) == 0


def test_lengths_are_checked_before_the_body(attacked: AttackedBroker) -> None:
    path = f"/v1/writes/w/0/staged?{OWN}"
    assert ask(attacked, put(path, b"", length=REQUEST_BYTES_MAX + 1)) == 413
    assert ask(attacked, put("/v1/writes/w/0", b"", "application/json", MiB + 1)) == 413
    # Only this one path takes large bodies.
    for other in ("/v1/writes/w/staged/x", "/v1/writes/staged", "/v1/topics/staged"):
        assert ask(attacked, put(other, b"", length=2 * MiB)) == 413


@pytest.mark.parametrize(
    "path",
    [
        "/v1/writes/../0/staged", "/v1/writes/%00/0/staged", "/v1/writes/a%2f..%2fb/0/staged",
        "/v1/writes//0/staged", "/v1/writes/w/-1/staged",
        "/v1/writes/w/99999999999999999999/staged",
        "/v1/writes/w/%30x/staged", f"/v1/writes/{'w' * 200}/0/staged",
    ],
)  # fmt: skip
def test_names_are_names(attacked: AttackedBroker, path: str) -> None:
    body = _native.batch_encode([b"x"])
    assert ask(attacked, put(f"{path}?{OWN}", body)) in (400, 404)


def test_a_flood_of_staging_is_bounded(attacked: AttackedBroker) -> None:
    """Large batches from many connections at once, never committed."""
    body = _native.batch_encode([os.urandom(MiB - 4096)])

    def flood(number: int) -> list[int]:
        path = f"/v1/writes/flood-{number}/0/staged?topic=staged&slice=0&attempt=a&seq="
        with attacked.shard_wire(0) as wire:
            wire.send(*(put(path + str(seq), body) for seq in range(6)))
            return [wire.response().status for _ in range(6)]

    with ThreadPoolExecutor(12) as pool:
        found = [status for each in pool.map(flood, range(24)) for status in each]
    assert set(found) <= {200, 409, 429, 503}, set(found)
    attacked.check_memory()
    for number in range(24):
        attacked.request("DELETE", f"/v1/writes/flood-{number}/0", shard=0)
    assert stored(attacked) == 0


def test_writes_without_number_are_refused(attacked: AttackedBroker) -> None:
    """Each is a file: there are 256 at most."""
    body = _native.batch_encode([b"x"])
    found = []
    with attacked.shard_wire(0) as wire:
        for number in range(300):
            wire.send(put(f"/v1/writes/many-{number}/0/staged?{OWN}", body))
            found.append(wire.response().status)
    assert found.count(200) <= 256 and set(found) == {200, 429}
    for number in range(300):
        attacked.request("DELETE", f"/v1/writes/many-{number}/0", shard=0)


def test_bodies_that_never_end(attacked: AttackedBroker) -> None:
    """Half a body, and gone: nothing is kept of it."""
    body = _native.batch_encode([b"x" * 1000] * 100, compress=False)
    for cut in (1, 1000, len(body) - 1):
        with attacked.shard_wire(0) as wire:
            wire.send(put(f"/v1/writes/half/0/staged?{OWN}", body[:cut], length=len(body)))
            wire.reset()
    assert attacked.request("GET", "/v1/writes/half/0", shard=0).status == 404


def test_commits_that_lie(attacked: AttackedBroker) -> None:
    body = _native.batch_encode([b"x"])
    assert ask(attacked, put(f"/v1/writes/c/0/staged?{OWN}", body)) == 200
    for attempts, rows in (
        (["a"], {"staged": {"0": 2}}),
        (["b"], {"staged": {"0": 1}}),
        (["a"], {"staged": {"0": 1, "1": 1}}),
        (["a"], {"other": {"0": 1}}),
        (["a"], {"staged": {str(n): 1 for n in range(4)}}),
        ([f"a{n}" for n in range(10_001)], {"staged": {"0": 1}}),
    ):
        document = json.dumps({"state": "committed", "attempts": attempts, "rows": rows}).encode()
        assert ask(attacked, put("/v1/writes/c/0", document, "application/json")) in (400, 409)
    deep = b'{"state":"committed","attempts":' + b"[" * 100_000 + b"]" * 100_000 + b',"rows":{}}'
    assert ask(attacked, put("/v1/writes/c/0", deep, "application/json")) == 400
    assert stored(attacked) == 0
    attacked.request("DELETE", "/v1/writes/c/0", shard=0)
