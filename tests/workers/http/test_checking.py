"""The values of bodies that are checked."""

from barco.workers.http.checking.values import KEYED, body_of

LINES = b'{"value": 1}\nnone\n\n{"value": null, "deliverAfter": "1s"}'


def test_lines_with_keys_are_read_when_they_are_looked_at() -> None:
    """A quarter of a million of them take a second, in which others are to have the loop."""
    body = body_of(KEYED, LINES)
    assert len(body.values) == 3 and not body.unread
    values = iter(body.values)
    assert next(values) == b"1" and not body.unread
    assert next(values) == b"none" and set(body.unread) == {1}
    assert next(values) is None and next(values, b"no more") == b"no more"
    assert b"1" in body.values and b"2" not in body.values
    assert [body.line(at) for at in range(3)] == [1, 2, 4]
    assert body.without({1}) == b'{"value": 1}\n{"value": null, "deliverAfter": "1s"}'
