"""The values of a produce's body: what is judged is what the core stores."""

import base64
import random

import pytest

from barco import _native
from barco.workers.http.checking import values


def keyed(*lines: bytes) -> values.Body:
    return values.body_of(values.KEYED, b"\n".join(lines))


def test_values_of_lines_with_keys_are_the_bytes_that_are_stored() -> None:
    lines = [
        b'{"key": "a", "value": {"km": 1, "x": "\\u0061"}}',
        b"",
        b'\t{ "value" : null , "key" : "b" } \r',
        b'{"value": {"base64": "AAAAAAF7fQ=="}, "headers": {"h": "v\\n"}, "timestamp": 7}',
        b'{"headers": {"\\u0068": {"base64": "/w=="}}, "value": " a ", "deliverAfter": "5s"}',
        b'{"value": {"\\u0062ase64": "AAAA"}}',
        b'{"value": {"base64": "", "base64": "AAAA"}}',
    ]
    wanted = [
        b'{"km": 1, "x": "\\u0061"}',
        None,
        b"\0\0\0\0\1{}",
        b'" a "',
        b'{"\\u0062ase64": "AAAA"}',
        b'{"base64": "", "base64": "AAAA"}',
    ]
    for each, value in zip((line for line in lines if line), wanted, strict=True):
        assert _native.keyed_values(each) == [value]
        body = keyed(each)
        assert body.values == [value] and not body.unread
        assert body.event(0).value == value and body.without([]) is not None
    body = keyed(lines[0], b" ", lines[2])
    assert body.values == wanted[:2] and [body.line(at) for at in (0, 1)] == [1, 3]
    assert body.event(1).key == b"b" and body.without([0]) == lines[2].removesuffix(b"\r")
    event = keyed(lines[3]).event(0)
    assert (event.time_us, event.headers) == (7, (("h", b"v\n"),))


@pytest.mark.parametrize(
    "line",
    [
        b'{"value": 1, "value": 2}',
        b'{"value": 1, "v": 2}',
        b'{"\\u0076alue": 1}',
        b'{"key": "a"}',
        b'{"value": 1',
        b"[]",
        b'{"value": {"base64": "A"}}',
        b'{"value": 1, "key": 2}',
        b'{"value": 1, "timestamp": 1, "deliverAt": "2030-01-01T00:00:00Z"}',
    ],
)
def test_lines_of_which_the_core_stores_nothing(line: bytes) -> None:
    assert _native.keyed_values(line) is None
    assert _native.keyed_values(b'{"value": 1}\n' + line) is None
    assert len(keyed(line).values) == 1  # All the same there is something to tell.


def test_what_is_given_stays_as_it_is() -> None:
    """The core writes what is escaped where it stands: in a copy."""
    body = b'{"value": {"base64": "AAAA"}, "key": "\\u0061", "headers": {"h": "\\u0061"}}'
    before = bytes(bytearray(body))
    assert _native.keyed_values(body) == [b"\0\0\0"] and body == before
    assert _native.keyed_values(b"") == [] and _native.keyed_values(b"\n \r\n") == []


def test_bodies_by_chance_are_read_as_by_the_other_reader() -> None:
    """Which reads each line by itself, in Python; or nothing of it is stored."""
    chance = random.Random(16)
    parts = [b'"value"', b'"key"', b":", b",", b"{", b"}", b" ", b'"a"', b"null", b"1", b'"base64"']
    parts += [b'"%s"' % base64.b64encode(b"\0\xff"), b"[1]", b"\\", b'"', b"\r", b"\n"]
    whole = [b'{"key": "k", "value": {"a": [1, "x"]}}', b'{"value": {"base64": "AP8="}}']
    alike = 0
    for _ in range(4_000):
        line = bytearray(chance.choice(whole))
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(line))
            line[at : at + chance.randrange(3)] = chance.choice(parts)
        found = _native.keyed_values(bytes(line))
        for at, text in enumerate(keyed(bytes(line)).values if found is not None else ()):
            assert found is not None and found[at] == text
            each = values._Lines(bytes(line), None).at(at)
            try:
                read = values._enveloped(each)
            except (ValueError, LookupError, TypeError, AttributeError):
                continue  # What stands there is no JSON: then it is told when it is judged.
            assert read.value == found[at], line
            alike += 1
    assert alike > 1_000


def test_single_events_lines_and_batches() -> None:
    lines = values.body_of(values.LINES, b"1\n\n2\r\n \t\r\n3\n", b"k")
    assert lines.values == [b"1", b"2", b"3"] and [lines.line(at) for at in range(3)] == [1, 3, 5]
    assert lines.without([1]) == b"1\n3" and lines.without([0, 1, 2]) is None
    assert lines.event(2) == values.OfBody(b"3", b"k")
    single = values.body_of(values.EVENT, b"1\n2", b"k")
    assert list(single.values) == [b"1\n2"] and single.without([0]) is None
    assert single.without([]) == b"1\n2"
    packed = _native.batch_encode([b"1", None], [b"a", b"b"], {"timestamp": [5, 6]})
    batch = values.body_of(values.BATCH, packed)
    left = batch.without([0])
    assert left is not None
    assert values.body_of(values.BATCH, left).event(0) == values.OfBody(None, b"b", 6)
