"""What somebody looks at beside events: who writes and reads in batches, who was refused; and an
event that is sent again as it is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Answer, RunningBroker
from test_letters import WHOLE, endpoint, post

import barco

ROOT = "barco_root"


def looked_at(broker: RunningBroker, path: str, token: str = "", **query: Any) -> Answer:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return broker.request("GET", path, query, headers=headers, listener="discovery")


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[RunningBroker]:
    broker = RunningBroker.closed(tmp_path / "data", ROOT)
    broker.start()
    yield broker
    broker.end()


def test_an_event_is_sent_again_as_it_is(broker: RunningBroker) -> None:
    with barco.Producer(endpoint(broker)) as producer:
        for value, key, headers in [*WHOLE, (b"dead", b"k", [("barco-dead-reason", b"why")])]:
            producer.send("t", value, key, headers=headers).result(30)
    found = list(barco.read("t", endpoint(broker)))
    places = [{"slice": each.slice, "offset": str(each.offset)} for each in found]
    told = post(broker, "/v1/topic/t/resend", {"events": [*places, places[0]]}).json
    assert (told["done"], told["gone"], told["left"]) == (len(found), 0, 0)
    told = post(broker, "/v1/topic/t/resend", {"events": places, "to": "u"}).json
    assert told["done"] == len(found)
    whole = sorted(repr((e.key, e.value, list(e.headers))) for e in found)
    for topic, times in (("t", 2), ("u", 1)):
        sent = [
            repr((e.key, e.value, list(e.headers))) for e in barco.read(topic, endpoint(broker))
        ]
        assert sorted(sent) == sorted(whole * times), topic
    nowhere = {"events": [{"slice": 0, "offset": "4000000000"}]}
    assert post(broker, "/v1/topic/t/resend", nowhere).json["gone"] == 1
    assert post(broker, "/v1/topic/none/resend", nowhere).status == 404
    for wrong in ({}, {"events": []}, {"events": places, "to": 1}, {"letters": places}, []):
        assert post(broker, "/v1/topic/t/resend", wrong).status == 400, wrong
    assert post(broker, "/v1/topic/__topics/resend", {"events": places}).status == 400


def test_who_writes_and_who_reads(broker: RunningBroker) -> None:
    assert looked_at(broker, "/v1/jobs").json == {"writers": [], "readers": [], "silent": 0}
    with barco.Admin(endpoint(broker)) as admin:
        admin.create_topic("t")
    slices = looked_at(broker, "/v1/topic/t/slices").json["slices"]
    for index in (0, slices[-1]["index"]):
        shard = slices[index]["worker"]
        staged = broker.request(
            *("PUT", "/v1/writes/query/7/staged"),
            {"attempt": "a", "topic": "t", "slice": index, "seq": 0},
            body=b"1\n2\n", headers={"Content-Type": "application/x-ndjson"}, shard=shard,
        )  # fmt: skip
        assert staged.status == 200, staged
    (write,) = looked_at(broker, "/v1/jobs").json["writers"]
    assert (write["writer"], write["batch"], write["state"]) == ("query", "7", "staged")
    assert (write["rows"], write["attempts"], write["topics"]) == (4, 1, ["t"])
    for state in ("prepared", "committed"):
        for index in (0, slices[-1]["index"]):
            body = {"state": state, "attempts": ["a"], "rows": {"t": {str(index): 2}}}
            done = broker.request(
                "PUT", "/v1/writes/query/7", body=json.dumps(body).encode(),
                headers={"Content-Type": "application/json"}, shard=slices[index]["worker"],
            )  # fmt: skip
            assert done.status == 200, done
        (write, *_) = looked_at(broker, "/v1/jobs").json["writers"]
        assert (write["state"], write["rows"]) == (state, 4)
    assert write["at"] > 10**15 and "bytes" not in write
    first = slices[0]
    path = f"/v1/topic/t/slices/{first['token']}/0/events"
    for said in ("spark/query 3", "spark/query 3", "spark/query 4", "lonely"):
        told = broker.request(
            "GET", path, headers={"Barco-Reader": said, "Accept": "application/x-ndjson"}
        )
        assert told.status == 200 and len(told.body.splitlines()) == 2
    told = broker.request("GET", path, headers={"Barco-Reader": "no name"})
    assert told.status == 400
    readers = {each["reader"]: each for each in looked_at(broker, "/v1/jobs").json["readers"]}
    query, lonely = readers["spark/query"], readers["lonely"]
    assert (query["batch"], query["rows"], query["total"], query["topic"]) == ("4", 2, 6, "t")
    assert (lonely["batch"], lonely["rows"], lonely["total"]) == ("", 2, 2)


def test_who_was_refused_and_who_administered(closed: RunningBroker, broker: RunningBroker) -> None:
    with barco.Admin(endpoint(closed), token=ROOT) as root:
        root.set_user("bob", token="bob-token", grants=["produce:t", "metrics"])
    closed.knows("Bearer bob-token")
    refused = closed.request(
        "DELETE", "/v1/topics/t", headers={"Authorization": "Bearer bob-token"},
        listener="discovery",
    )  # fmt: skip
    assert refused.status == 403
    told = looked_at(closed, "/v1/audit", ROOT).json
    assert told["audited"] and told["silent"] == 0
    line = next(each for each in told["lines"] if each["user"] == "bob")
    assert (line["what"], line["status"], line["path"]) == ("refused", 403, "/v1/topics/t")
    assert line["request"] == refused.headers["barco-request-id"] and line["at"] > 10**15
    mine = next(each for each in told["lines"] if each["what"] == "administered")
    assert (mine["method"], mine["path"]) == ("PUT", "/v1/users/bob")
    times = [each["at"] for each in told["lines"]]
    assert times == sorted(times, reverse=True)
    assert len(looked_at(closed, "/v1/audit", ROOT, max=1).json["lines"]) == 1
    assert looked_at(closed, "/v1/audit", "bob-token").status == 403
    assert looked_at(closed, "/v1/jobs", "bob-token").status == 200
    assert looked_at(broker, "/v1/audit").json == {"audited": False, "silent": 0, "lines": []}
