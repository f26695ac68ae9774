"""Small requests that stand for much: batches that unpack to millions of events, and reads."""

import json
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from attacked import AttackedBroker, MiB
from wire import head, produce

from barco import _native

BATCH = "application/vnd.barco.batch"
TOKEN = "-9223372036854775808"


def read(topic: str, index: int, query: str, kind: str = "application/x-ndjson") -> bytes:
    target = f"/v1/topic/{topic}/slices/{TOKEN}/{index}/events?{query}"
    return head("GET", target, [f"Accept: {kind}"])


def test_batches_that_unpack_to_millions_of_events(attacked: AttackedBroker) -> None:
    for count in (3_900_000, (1 << 18) + 1):
        batch = _native.batch_encode([b""] * count)
        assert len(batch) < MiB
        assert attacked.exchange(produce("bomb", batch, kind=BATCH)).status == 413
    attacked.check_memory()


def test_a_batch_of_many_empty_events_is_read_a_piece_at_a_time(attacked: AttackedBroker) -> None:
    """Beside it an honest client; six readers at once."""
    count = 1 << 18
    batch = _native.batch_encode([b""] * count)
    answer = attacked.exchange(produce("thin", batch, "slice=0", kind=BATCH), timeout=60)
    assert answer.status == 200, answer
    for kind in ("application/x-ndjson", "application/json", "application/vnd.barco.chunks"):
        answer = attacked.exchange(read("thin", 0, "maxBytes=1", kind))
        assert answer.status == 200 and len(answer.body) < 8192, (kind, len(answer.body))

    def reads(_: int) -> int:
        most = 0
        with attacked.wire(timeout=60) as wire:
            for _ in range(6):
                wire.send(read("thin", 0, "maxBytes=4194304"))
                answer = wire.response()
                assert answer.status in (200, 503)
                most = max(most, len(answer.body))
        return most

    with ThreadPoolExecutor(6) as pool:
        done = pool.map(reads, range(6))
        for number in range(50):
            assert attacked.exchange(produce("honest", b"%d" % number)).status == 200
            attacked.check_memory()
        assert max(done) <= 4 * MiB + 1024
    answer = attacked.exchange(read("thin", 0, "maxBytes=100000"))
    last = json.loads(answer.body.splitlines()[-1])
    cursor = answer.headers["barco-next-cursor"]
    assert int(cursor.split("-")[1], 16) == int(last["offset"]) + 1


@pytest.mark.parametrize("field", range(0, 32, 4))
def test_batches_that_lie_about_their_size(attacked: AttackedBroker, field: int) -> None:
    good = _native.batch_encode([b"x" * 100] * 50)
    for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
        lying = bytearray(good)
        struct.pack_into("<I", lying, field, value)
        if bytes(lying) != good:
            answer = attacked.exchange(produce("lies", bytes(lying), kind=BATCH))
            assert answer.status in (200, 400, 413), answer
