"""Topics to read, and what must come out of them."""

import hashlib
import http.client
import json
import random
import subprocess
from collections.abc import Iterable
from typing import Any

from barco import _native

REQUEST_EVENTS = 500


def value_of(number: int) -> bytes:
    """A distinct value for each number, of 30 to 200 bytes."""
    return b'{"n":%d,"text":"%s"}' % (number, b"lorem ipsum " * (1 + number % 15))


def key_of_number(number: int) -> bytes | None:
    """A key for six of seven events."""
    return b"key-%d" % (number % 1000) if number % 7 else None


def produce(broker: Any, topic: str, numbers: Iterable[int]) -> int:
    """Events with these numbers; returns how many."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.port("produce"), timeout=60)
    listed = list(numbers)
    headers = {"Content-Type": "application/vnd.barco.batch", "Prefer": "return=minimal"}
    for at in range(0, len(listed), REQUEST_EVENTS):
        some = listed[at : at + REQUEST_EVENTS]
        body = _native.batch_encode([value_of(n) for n in some], [key_of_number(n) for n in some])
        connection.request("POST", f"/v1/topic/{topic}/messages", body, headers)
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status == 204, (answer.status, said)
    connection.close()
    return len(listed)


def digest(pairs: Iterable[tuple[bytes | None, bytes]]) -> tuple[int, str]:
    """How many rows, and a checksum over them that does not depend on their order."""
    total = count = 0
    for key, value in pairs:
        row = (b"-" if key is None else b"+" + key) + b"\0" + value
        total += int.from_bytes(hashlib.blake2b(row, digest_size=16).digest(), "little")
        count += 1
    return count, f"{total % 2**128:032x}"


def expected(numbers: Iterable[int]) -> tuple[int, str]:
    """What reading the events with these numbers must give."""
    return digest((key_of_number(n), value_of(n)) for n in numbers)


def collected(frame: Any) -> tuple[int, str]:
    """What a DataFrame with key and value gives, by Arrow."""
    table = frame.select("key", "value").toArrow()
    return digest(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def shuffled(count: int, seed: int = 7) -> list[int]:
    """The numbers below, in some order."""
    numbers = list(range(count))
    random.Random(seed).shuffle(numbers)
    return numbers


def endpoint_of(broker: Any) -> str:
    """What `endpoints` is to be."""
    if (given := getattr(broker, "endpoint", None)) is not None:  # A ring has three.
        return str(given)
    return f"127.0.0.1:{broker.port('discovery')}"


def run_json(
    command: list[str], env: dict[str, str], timeout: float, *, quiet: bool = False
) -> Any:
    """A program's last line of output, as JSON. `quiet`: without what Spark says of its start."""
    done = subprocess.run(
        command, env=env, timeout=timeout, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    if quiet:
        said = done.stderr + done.stdout
        assert not [noise for noise in (" WARN ", "log4j", "log level", "Future") if noise in said]
    return json.loads(done.stdout.strip().splitlines()[-1])
