"""What a program without our library stages: one event, or one a line, of one key or of none."""

from typing import Any

from test_staging import KIND, put, stored
from twin import Answer, Broker, run

from barco.model.note import home_of_key
from barco.model.placement import Placement


async def stage_lines(
    broker: Broker, body: bytes, query: dict[str, Any], kind: str = "application/x-ndjson"
) -> Answer:
    given = {"topic": "t", "attempt": "a", "seq": 0, **query}
    path, headers = "/v1/writes/q/0/staged", {"Content-Type": kind}
    return await broker.request("PUT", path, given, headers=headers, body=body, worker=0)


@run
async def test_lines_and_single_events_of_one_key_or_none() -> None:
    """The slice follows from the key."""
    broker = Broker()
    ring = Placement(1, 8)
    keys = {home_of_key(b"k%d" % n, ring): b"k%d" % n for n in range(100)}
    mine, theirs = keys[1], keys[7]
    told = await stage_lines(broker, b'{"n":1}\r\n\n {"n":2}\n', {"partitionKey": mine.decode()})
    assert told.json == {"rows": 2, "duplicate": False, "slice": 1}, told
    more = {"partitionKey": mine.decode(), "seq": 1}
    assert (await stage_lines(broker, b"one\ntwo", more, "application/json")).json["rows"] == 1
    elsewhere = await stage_lines(broker, b"x", {"partitionKey": theirs.decode()})
    assert elsewhere.status == 421 and elsewhere.json["owner"] == "127.0.0.1:9301"
    assert (await stage_lines(broker, b"no key\n", {"slice": 0})).json["slice"] == 0
    wrong = await stage_lines(broker, b"x", {"partitionKey": mine.decode(), "slice": 0, "seq": 1})
    assert wrong.status == 400, "the key is another slice's"
    for body, query in ((b"", {"slice": 0}), (b" \n\n", {"slice": 0}), (b"x", {})):
        assert (await stage_lines(broker, body, query)).status == 400
    packed = await stage_lines(broker, b"x", {"partitionKey": "k"}, KIND["Content-Type"])
    assert packed.status == 400
    assert (await stage_lines(broker, b"x", {"slice": 0}, "text/plain")).status == 415
    rows = {"t": {"0": 1, "1": 3}}
    assert (await put(broker, "committed", ["a"], rows)).status == 200
    assert stored(broker, 1) == [b'{"n":1}', b'{"n":2}', b"one\ntwo"]
    assert stored(broker, 0) == [b"no key"]
