"""PUT /v1/topology over the in-memory twin: a single broker, which does not grow."""

import json
from typing import Any

import pytest
from twin import Broker, run


@run
async def test_a_single_broker_is_what_it_is() -> None:
    broker = Broker()
    topology = (await broker.request("GET", "/v1/topology")).json
    brokers = topology["target"]["brokers"]
    assert topology["target"]["version"] == 0 and [each["ordinal"] for each in brokers] == [0]
    asked = {"cluster": topology["cluster"], "version": 0, "brokers": brokers}

    async def put(**changes: Any) -> tuple[int, str]:
        body = json.dumps(asked | changes).encode()
        answer = await broker.request("PUT", "/v1/topology", body=body)
        return answer.status, answer.json.get("detail", "")

    three = [{"ordinal": each, "workers": 1} for each in range(3)]
    status, detail = await put(brokers=three)
    assert (status, "a single broker does not grow" in detail) == (400, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("[]", "JSON object"),
        ('{"cluster": "c", "version": 0}', "has no brokers"),
        ('{"cluster": "c", "version": 0, "brokers": 6}', "brokers a list"),
        ('{"cluster": 1, "version": 0, "brokers": []}', "cluster is a text"),
        ('{"cluster": "c", "version": "0", "brokers": []}', "version is a whole number"),
        ('{"cluster": "c", "version": true, "brokers": []}', "version is a whole number"),
        ('{"cluster": "c", "version": 0, "brokers": [1]}', "is a JSON object"),
        ('{"cluster": "c", "version": 0, "brokers": [{"ordinal": 0}]}', "workers is a whole"),
        (
            '{"cluster": "c", "version": 0, "brokers": [{"ordinal": 0, "workers": 1, "host": 2}]}',
            "ASCII",
        ),
        (
            '{"cluster":"c","version":0,"brokers":[{"ordinal":0,"workers":1,"host":"a\\u0000"}]}',
            "ASCII",
        ),
        ('{"cluster": "c", "version": 0, "brokers": [], "broker": 1}', "did you mean brokers"),
    ],
)
def test_what_is_no_target(body: str, words: str) -> None:
    @run
    async def asked() -> None:
        answer = await Broker().request("PUT", "/v1/topology", body=body.encode())
        assert (answer.status, words in answer.json["detail"]) == (400, True), answer.json

    asked()
