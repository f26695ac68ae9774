"""How many bytes a second of values can be checked? `python -m bench.checked`.

What a worker's Python does with a body before the core goes on with it, by itself: bodies of right
events, single, as lines, as lines with keys and as batches, of schemas in each kind; and what is of
it where nothing is passed over (`slow`). On one core, by CPU time, the best of some rounds. Bar:
100 MB/s of JSON in lines of 1 KiB.
"""

import argparse
import asyncio
import io
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import fastavro

from barco import _native
from barco.workers.http.checking import values
from barco.workers.http.checking.subjects import Subjects
from barco.workers.schemas import judging

BAR_MB_S, BAR_CASE = 100.0, ("JSON", "lines", 1024)
BODY_BYTES, ROUNDS, ROUND_S = 256 * 1024, 7, 0.3
ID = 1
LEAD = b"\0\0\0\0\1"

TRIP: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["id", "carrier", "km"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "carrier": {"enum": ["AA", "UA", "DL"]},
        "km": {"type": "number", "minimum": 0},
        "to": {"type": "string", "minLength": 3, "maxLength": 3},
        "stops": {"type": "array", "items": {"$ref": "#/definitions/stop"}},
    },
    "definitions": {
        "stop": {
            "type": "object",
            "required": ["at", "code"],
            "properties": {
                "at": {"type": "string", "format": "date-time"},
                "code": {"type": "string"},
                "late": {"type": "integer"},
                "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            },
        }
    },
}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "carrier", "type": "string"},
        {"name": "km", "type": "double"},
        {"name": "to", "type": "string"},
        {
            "name": "stops",
            "default": [],
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Stop",
                    "fields": [
                        {"name": "at", "type": "string"},
                        {"name": "code", "type": "string"},
                        {"name": "late", "type": "int"},
                        {"name": "note", "type": ["null", "string"]},
                    ],
                },
            },
        },
    ],
}
TEXTS = {"JSON": json.dumps(TRIP), "AVRO": json.dumps(AVRO), "PROTOBUF": 'syntax = "proto3";'}


class Keeper:
    """Of one schema, who is asked for it: the rest of a worker is not here."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    async def change_slice(self, _slice: int, _op: str, args: dict[str, Any]) -> Any:
        """As slice 0 answers."""
        if args["what"] == "ids":
            return [ID]
        return {"kind": self._kind, "text": TEXTS[self._kind], "needed": []}


def trip(chance: random.Random, size: int) -> dict[str, Any]:
    """Of about so many bytes of JSON."""
    made: dict[str, Any] = {
        "id": chance.randrange(10**9),
        "carrier": chance.choice(["AA", "UA", "DL"]),
        "km": round(chance.random() * 1000, 2),
        "to": "JFK",
        "stops": [],
    }
    for _ in range(size // 98):
        at = f"2025-11-27T{chance.randrange(24):02}:00:00Z"
        late = chance.randrange(-20, 300)
        made["stops"].append({"at": at, "code": "LGA", "late": late, "note": "on time, " * 3})
    return made


def value(kind: str, event: dict[str, Any]) -> bytes:
    """As a serializer writes it."""
    if kind == "AVRO":
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, event)
        return LEAD + out.getvalue()
    return json.dumps(event).encode() if kind == "JSON" else LEAD + b"\0" + bytes(len(str(event)))


def bodies(form: str, events: list[bytes]) -> list[tuple[int, bytes]]:
    """What is sent, with the content's kind."""
    if form == "single":
        return [(values.EVENT, each) for each in events]
    if form == "lines":
        return [(values.LINES, b"\n".join(events))]
    if form == "keyed":
        lines = (b'{"key": "k%d", "value": %s}' % (at, each) for at, each in enumerate(events))
        return [(values.KEYED, b"\n".join(lines))]
    return [(values.BATCH, _native.batch_encode(events, None))]


def measure(work: Callable[[], None], size: int) -> float:
    """MB/s, by the best round."""
    best = 0.0
    for _ in range(ROUNDS):
        began, times = time.process_time(), 0
        while (spent := time.process_time() - began) < ROUND_S / ROUNDS or times == 0:
            work()
            times += 1
        spent = time.process_time() - began
        best = max(best, size * times / spent / 1e6)
    return best


def case(kind: str, form: str, size: int, slow: bool) -> float:
    """Of one kind of bodies."""
    chance = random.Random(16)
    events = [value(kind, trip(chance, size)) for _ in range(max(1, BODY_BYTES // size))]
    subjects = Subjects(Keeper(kind))  # type: ignore[arg-type]
    sent = bodies(form, events)

    async def check() -> None:
        for content, body in sent:
            held = values.body_of(content, body)
            assert not await subjects.flaws("t", held.values, kind == "JSON")

    with asyncio.Runner() as runner:
        runner.run(check())
        if slow:
            known = subjects._judges
            for id, (_, judge) in list(known.items()):
                assert judge is not None
                known[id] = (kind, judging.Judge(judge.look))
        return measure(lambda: runner.run(check()), sum(len(each) for each in events))


def main() -> int:
    """1: it is slower than the bar."""
    options = argparse.ArgumentParser(description=__doc__)
    options.parse_args()
    bar = 0.0
    print("kind      form    bytes   MB/s   slow")
    for kind, forms in (
        ("JSON", ("single", "lines", "keyed", "batch")),
        ("AVRO", ("single", "batch")),
        ("PROTOBUF", ("single", "batch")),
    ):
        for form in forms:
            for size in (100, 1024, 10240):
                found = case(kind, form, size, False)
                slow = f"{case(kind, form, size, True):6.0f}" if kind == "JSON" else ""
                print(f"{kind:9} {form:7} {size:5} {found:6.0f} {slow}", flush=True)
                if (kind, form, size) == BAR_CASE:
                    bar = found
    print(f"bar: {BAR_MB_S:.0f} MB/s of {' '.join(map(str, BAR_CASE))}: {bar:.0f}")
    return int(bar < BAR_MB_S)


if __name__ == "__main__":
    sys.exit(main())
