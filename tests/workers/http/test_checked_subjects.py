"""What a topic's values are checked with: which of them are judged, one by one or many at once, and
that others have the loop meanwhile."""

import asyncio
import json
from typing import Any

import pytest

from barco.workers.http.checking import subjects
from barco.workers.schemas import words

SCHEMAS = {
    1: (words.JSON, {"type": "object", "required": ["km"]}),
    2: (words.AVRO, "long"),
    3: (words.JSON, {"properties": {"km": {"pattern": "^x"}}, "additionalProperties": False}),
}


class Keeper:
    """Who keeps the schemas, asked as a worker asks: all there is of a broker here."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    async def change_slice(self, _slice: int, _op: str, args: dict[str, Any]) -> Any:
        if args["what"] == "ids":
            return self.ids
        kind, schema = SCHEMAS[args["id"]]
        return {"kind": kind, "text": json.dumps(schema), "needed": []}


def checked(ids: list[int]) -> subjects.Subjects:
    return subjects.Subjects(Keeper(ids))  # type: ignore[arg-type]


def lead(id: int) -> bytes:
    return b"\0" + id.to_bytes(4, "big")


def test_each_value_is_judged_by_its_own_schema() -> None:
    values: list[bytes | None] = [
        *(b'{"km": 1}', None, b"{}", lead(1) + b'{"km": 1}', lead(1) + b"[]", lead(2) + b"\x02"),
        *(lead(2) + b"\x02\x02", lead(3) + b'{"km": "x"}', lead(3) + b'{"km": "y"}', lead(4)),
        *(b"\0\0\0", b'{"km": 1}', b"", lead(1), b'{"km": 2}', b'{"km": [}'),
    ]

    async def flaws(ids: list[int], is_json: bool) -> list[int]:
        return sorted(await checked(ids).flaws("t", values, is_json))

    assert asyncio.run(flaws([2, 3, 1], True)) == [2, 4, 6, 8, 9, 10, 12, 13, 15]
    # Without saying that it is JSON it needs an id; with Avro as the newest, too.
    bare = [0, 2, 11, 12, 14, 15]
    assert asyncio.run(flaws([2, 3, 1], False)) == sorted({4, 6, 8, 9, 10, 13, *bare})
    assert asyncio.run(flaws([1, 3, 2], True)) == sorted({4, 6, 8, 9, 10, 13, *bare})
    assert asyncio.run(flaws([], True)) == [at for at in range(len(values)) if at != 1]


def test_a_value_behind_others_has_the_schema_that_it_names() -> None:
    """Those before it were passed over at once, by that of their own."""
    values: list[bytes | None] = [
        b'{"km": 1}',
        b'{"km": 2}',
        lead(3) + b'{"km": "x"}',
        b'{"km": 3}',
    ]
    values += [lead(1) + b'{"km": 1}', lead(2) + b"\x02", lead(1) + b'{"km": 2}', b"{}", None]
    assert list(asyncio.run(checked([2, 3, 1]).flaws("t", values, True))) == [7]


@pytest.mark.parametrize("value", [b'{"km": "' + b"x" * 1_000 + b'"}', b'{"a": 1, "km": 1.0e1}'])
def test_others_have_the_loop_after_each_run(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the clock says: here each turn is over at once."""
    monkeypatch.setattr(subjects, "TURN_S", -1.0)
    count = 4 * subjects.RUN_BYTES // len(value)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def main() -> None:
        one = checked([3, 1])
        looked: list[bytes | None] = [lead(3) + b'{"km": "x"}'] * 50
        assert not await one.flaws("t", [value, looked[0]], True)  # It knows the schemas.
        task = asyncio.create_task(others())
        await asyncio.sleep(0)
        before = turns
        assert not await one.flaws("t", [value] * count, True)
        assert turns - before >= 3
        before = turns
        assert not await one.flaws("t", looked, True)
        assert turns - before >= 50  # Of what the validator looks at, after each.
        task.cancel()

    asyncio.run(main())
