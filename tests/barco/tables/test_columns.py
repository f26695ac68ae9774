"""JSON as columns: what does not fit is kept, and no value gets a hand on another one's row."""

import json
import math
import random
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'barco[export]'")

from barco.errors import OperatorError
from barco.tables.columns import COLUMNS_MAX, DEPTH_MAX, JsonColumns, parse_columns


def found() -> JsonColumns:
    return JsonColumns(pa.struct([]), grow=True, taken=["_key"])


def rows(columns: JsonColumns, *values: bytes | None) -> list[tuple[Any, bool]]:
    told = columns.rows(pa.array(values, pa.binary()))
    told.columns.validate(full=True)
    return list(zip(told.columns.to_pylist(), told.fits.to_pylist(), strict=True))


def test_types_are_found_together() -> None:
    columns = found()
    values = [b'{"a":1,"s":"x"}', b'{"a":2.5}', b'{"l":[1,2],"o":{"x":true}}']
    assert rows(columns, *values) == [
        ({"a": 1.0, "s": "x", "l": None, "o": None}, True),
        ({"a": 2.5, "s": None, "l": None, "o": None}, True),
        ({"a": None, "s": None, "l": [1, 2], "o": {"x": True}}, True),
    ]
    assert columns.kind == pa.struct(
        [
            ("a", pa.float64()),
            ("s", pa.string()),
            ("l", pa.list_(pa.int64())),
            ("o", pa.struct([("x", pa.bool_())])),
        ]
    )


def test_new_fields_become_columns_and_old_ones_stay() -> None:
    columns = found()
    rows(columns, b'{"a":1,"o":{"x":1}}')
    told = rows(columns, b'{"b":"z"}', b'{"o":{"x":2,"y":[{"q":1}]}}', b'{"a":2.5}')
    assert told == [
        ({"a": None, "o": None, "b": "z"}, True),
        ({"a": None, "o": {"x": 2, "y": [{"q": 1}]}, "b": None}, True),
        (None, False),  # A column of whole numbers that are in files already.
    ]


def test_what_was_only_null_is_no_column_yet() -> None:
    columns = found()
    values = [b'{"n":null,"e":{},"l":[],"a":1,"o":{"m":null,"x":1}}', b'{"n":null,"l":[]}']
    assert rows(columns, *values) == [
        ({"a": 1, "o": {"x": 1}}, True),
        ({"a": None, "o": None}, True),
    ]
    assert rows(columns, b'{"n":7,"e":{"k":"v"},"l":["s"],"o":{"m":2.0}}') == [
        ({"a": None, "o": {"m": 2.0, "x": None}, "n": 7, "e": {"k": "v"}, "l": ["s"]}, True)
    ]


MISFITS = [
    *(b"", b" ", b"5", b"null", b"[]", b'"s"', b"nonsense", b"{", b"}", b'{"a":1', b'{"a":1}}'),
    *(b'{"a":1}{"a":2}', b'{"a":1} {"a":2}', b'{"a":1}\n{"a":2}', b'{"a":1},"v":{"a":2}'),
    *(b'{"a":1},"w":2', b'{"a":1},"w":{"x":1', b'{"a":1},"w":["', b'{"a":1,"a":2}', b'{"a":"s"}'),
    *(b'{"a":1.5}', b'{"a":[1]}', b'{"a":{}}', b'{"a":99999999999999999999}', b'{"A":1}'),
    *(b'{"_key":1}', b'{"_KEY":1}', b'{"":1}', b'{"s":"\xff"}', b'{"s":"\\ud800"}', b'{"s":"\n"}x'),
    *(b"\xff", b"\0", b'{"a":1}\0', b'{"a":' * 30_000, b'{"a":' * 30_000 + b"1" + b"}" * 30_000),
    *(b'{"a":' + b"[" * 30_000 + b"]" * 30_000 + b"}", b'{"z":' * 20 + b"1" + b"}" * 20),
    b'{"s":"' + b"}" * 3_000 + b'","a":' + b"[" * 30_000,
]


@pytest.mark.parametrize("value", MISFITS)
def test_a_misfit_is_one_row_and_its_neighbours_are_theirs(value: bytes) -> None:
    columns = found()
    good = [b'{"a":%d,"s":"n%d"}' % (n, n) for n in range(9)]
    expected = [({"a": n, "s": f"n{n}"}, True) for n in range(9)]
    assert rows(columns, *good) == expected
    for at in range(0, 10, 3):
        told = rows(columns, *good[:at], value, *good[at:])
        assert told[at] == (None, False)
        assert told[:at] + told[at + 1 :] == expected


def test_pairs_that_would_make_up_for_each_other() -> None:
    """One that has none or half a row, and one that has two: as many rows as values."""
    columns = found()
    rows(columns, b'{"a":0}')
    twice = [b'{"a":1}{"a":2}', b'{"a":1}},{"v":{"a":2}', b'{"a":1}}\n{"v":{"a":2}']
    for none in (b"", b" ", b'{"a":', b'{"a":1,', b"{"):
        for two in twice:
            told = rows(columns, none, two, b'{"a":3}', two, none)
            assert told == [(None, False)] * 2 + [({"a": 3}, True)] + [(None, False)] * 2


def test_pretty_printed_and_tombstones() -> None:
    columns = found()
    told = rows(columns, b'\r\n {\n"a" :\t1\r\n}\n', None, b'{"s":"a\\nb\\u0000"}')
    assert told == [
        ({"a": 1, "s": None}, True),
        (None, True),
        ({"a": None, "s": "a\nb\0"}, True),
    ]


def test_times_stay_text_unless_they_are_named() -> None:
    assert rows(found(), b'{"t":"2026-01-01T00:00:00Z"}') == [({"t": "2026-01-01T00:00:00Z"}, True)]
    given = JsonColumns(parse_columns("t:timestamp, n:long[]"), grow=False)
    told = rows(given, b'{"t":"2026-01-01T00:00:00Z","x":1}', b'{"n":[1]}', b'{"t":"no"}')
    assert [fits for _, fits in told] == [True, True, False]
    assert told[0][0]["t"].isoformat() == "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize("text", ["", "a", "a:", ":long", "a:int", "a:long,", "a:long,A:string"])
def test_columns_that_are_none(text: str) -> None:
    with pytest.raises(OperatorError):
        parse_columns(text)


def test_bounds() -> None:
    columns = found()
    many = json.dumps({f"f{n}": n for n in range(COLUMNS_MAX)}).encode()
    assert rows(columns, many)[0][1]
    assert rows(columns, b'{"f3":1}', b'{"one_more":1}')[0][1]
    assert rows(columns, b'{"one_more":1}') == [(None, False)]
    deep = found()
    inner = DEPTH_MAX - 2
    assert rows(deep, b'{"d":' * inner + b'{"a":1}' + b"}" * inner)[0][1]
    assert rows(deep, b'{"d":' * DEPTH_MAX + b'{"a":1}' + b"}" * DEPTH_MAX) == [(None, False)]


def test_against_python() -> None:
    """Whatever is mixed: what fits is what json has, and a value that fits a column fits."""
    chance = random.Random(7)
    fitting = 0

    def value() -> Any:
        kinds = [1, 2.5, "s", None, True, [1], [], {"x": 1}, {}, {"x": None}]
        names = ("a", "b", "c", "d")
        return {name: chance.choice(kinds) for name in names if chance.random() < 0.6}

    for _ in range(60):
        columns = found()
        for _ in range(3):
            batch = [value() for _ in range(chance.randrange(1, 30))]
            texts = [json.dumps(each).encode() for each in batch]
            if chance.random() < 0.5:
                texts[chance.randrange(len(texts))] = b"no"
            for text, (row, fits) in zip(texts, rows(columns, *texts), strict=True):
                if not fits:
                    assert row is None
                    continue
                assert pruned(row or {}) == pruned(json.loads(text)), (text, row)
                fitting += 1
    assert fitting > 300


def pruned(value: Any) -> Any:
    """Without what a column can not tell from nothing."""
    if isinstance(value, dict):
        items = {name: pruned(each) for name, each in value.items()}
        return {name: each for name, each in items.items() if each not in (None, {}, [])}
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value
