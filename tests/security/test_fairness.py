"""An honest producer beside floods: bounded here, full-size under `-m chaos`."""

import socket
from contextlib import ExitStack

import pytest
from attacked import AttackedBroker
from honest import beside
from wire import Wire, head

SMALL = {"gets": 400, "refusals": 400, "resets": 2000, "long_reads": 100}
FULL = {"gets": 2000, "refusals": 2000, "resets": 35_000, "long_reads": 2000}


@pytest.mark.parametrize("name", SMALL)
def test_an_honest_client_beside_a_flood(attacked: AttackedBroker, name: str) -> None:
    beside(attacked, name, 3.0, SMALL[name])


@pytest.mark.chaos
@pytest.mark.parametrize("name", FULL)
def test_an_honest_client_beside_a_flood_of_thousands(attacked: AttackedBroker, name: str) -> None:
    beside(attacked, name, 20.0, FULL[name])


def test_who_asks_much_waits_for_its_own_requests(attacked: AttackedBroker) -> None:
    """Hundreds of connections with eight requests each, from one address; one from another."""
    asking = head("GET", "/v1/topics") * 8
    with ExitStack() as stack:
        crowd = []
        for _ in range(300):
            sock = stack.enter_context(socket.socket())
            sock.bind(("127.0.0.2", 0))
            sock.connect(("127.0.0.1", attacked.port(shard=0)))
            sock.settimeout(60)
            sock.sendall(asking)
            crowd.append(Wire(sock))
        with attacked.shard_wire(0) as wire:
            for _ in range(5):
                wire.send(head("GET", "/v1/topics"))
                assert wire.response().status == 200
        answers = [answer for wire in crowd for answer in wire.responses(8)]
    assert {answer.status for answer in answers} <= {200, 503}
    for answer in answers:
        if answer.status == 503:
            assert answer.headers["barco-outcome"] == "not-written"
            assert int(answer.headers["retry-after"]) > 0
            assert b"crowded" in answer.body
    assert sum(answer.status == 200 for answer in answers) > 500
