"""Gossip with TLS: who is let in with which certificate, over real sockets."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gossiping import CLUSTER, Lab, until
from reference.certificates import Files, authority, broker

from barco.mutual import Mutual, Session
from barco.protocol import door


class Made:
    """Certificates of an authority, and such as nobody should believe."""

    def __init__(self, path: Path) -> None:
        self.ca, other = authority(path), authority(path, "other")
        name = f"barco:{CLUSTER}/"
        self.good = [broker(path, self.ca, f"b{each}", f"{name}{each}") for each in range(3)]
        self.bad = {
            "another broker's": self.good[1],
            "another authority's": broker(path, other, "s", f"{name}2"),
            "expired": broker(path, self.ca, "o", f"{name}2", days=-1),
            "another cluster's": broker(path, self.ca, "e", f"barco:{'e' * 32}/2"),
        }

    def mutual(self, files: Files, *, required: bool = True) -> Mutual:
        texts = {
            "required": required,
            "certificate": files.certificate.read_text(),
            "key": files.key.read_text(),
            "ca": self.ca.certificate.read_text(),
        }
        return Mutual(CLUSTER, texts)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """All of them."""
    return Made(tmp_path_factory.mktemp("certificates"))


async def three(made: Made, third: Mutual) -> Lab:
    lab = Lab(3)
    lab.mutual = {0: made.mutual(made.good[0]), 1: made.mutual(made.good[1]), 2: third}
    for ordinal in range(3):
        await lab.start(ordinal)
    return lab


def test_three_brokers_meet_lose_one_and_get_it_back(made: Made) -> None:
    async def run() -> None:
        lab = await three(made, made.mutual(made.good[2]))
        await until(lab.whole)
        for node in lab.nodes.values():
            links = [link for peer in node._peers.values() for link in peer.links]
            assert len(links) >= 2 and not node.refusals
            for link in links:
                tls = link.writer.get_extra_info("ssl_object")
                assert tls is not None and tls.version() == "TLSv1.3"
        await lab.crash(1)
        await until(lambda: lab.all_see(1, "down"))
        await lab.start(1)
        await until(lab.whole)
        await lab.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "what", ["another broker's", "another authority's", "expired", "another cluster's"]
)
def test_who_is_not_believed(made: Made, what: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        lab = await three(made, made.mutual(made.bad[what]))
        await until(lambda: 2 in lab.nodes[0].refusals and 2 in lab.nodes[1].refusals)
        await until(lambda: lab.state(0, 1) == lab.state(1, 0) == "alive")
        before = lab.nodes[0].counters.refusals
        await until(lambda: lab.nodes[0].counters.refusals > before + 1)
        assert not any(lab.nodes[at].connected()[2] for at in (0, 1))
        assert {lab.state(0, 2), lab.state(1, 2)} <= {None, "suspect", "down"}
        await lab.close()

    asyncio.run(run())
    said = [each.getMessage() for each in caplog.records]
    said = [each for each in said if "broker 2 is not believed" in each]
    assert said and max(map(said.count, said)) <= 2, "each of two says a reason once"


def test_plain_and_sealed_refuse_each_other_in_words(made: Made) -> None:
    async def run() -> None:
        lab = await three(made, Mutual(CLUSTER, {}))
        await until(lambda: 2 in lab.nodes[0].refusals and 0 in lab.nodes[2].refusals)
        assert "goes on with TLS" in lab.nodes[0].refusals[2]
        assert "goes on with TLS" in lab.nodes[2].refusals[0]
        await until(lambda: lab.state(0, 1) == lab.state(1, 0) == "alive")
        assert not any(lab.nodes[at].connected()[2] for at in (0, 1))
        await lab.close()

    asyncio.run(run())


def test_each_end_insists_by_itself(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who knows the secret and has no certificate does not mind that the others want TLS."""
    disagreement = door.disagreement

    def careless(greeting: Mapping[str, Any], *, tls: door.Tls) -> str | None:
        return None if tls is None else disagreement(greeting, tls=tls)

    monkeypatch.setattr(door, "disagreement", careless)

    async def run() -> None:
        lab = await three(made, Mutual(CLUSTER, {}))
        await until(lambda: 2 in lab.nodes[0].refusals and 2 in lab.nodes[1].refusals)
        await until(lambda: lab.nodes[2].refusals.keys() == {0, 1})
        assert not any(lab.nodes[at].connected()[2] for at in (0, 1))
        await lab.close()

    asyncio.run(run())


def test_a_ring_goes_over_one_by_one(made: Made) -> None:
    """Plain, then with whom it can, then nothing else: it is whole all the way."""

    def sealed(lab: Lab, one: int, other: int) -> bool:
        links = lab.nodes[one]._peers[other].links
        tls = [link.writer.get_extra_info("ssl_object") is not None for link in links]
        return bool(tls) and all(tls)

    async def run() -> None:
        lab = Lab(3)
        lab.mutual = {each: Mutual(CLUSTER, {}) for each in range(3)}
        for each in range(3):
            await lab.start(each)
        await until(lab.whole)
        assert not sealed(lab, 0, 1)
        for required in (False, True):
            for each in range(3):
                await lab.crash(each)
                lab.mutual[each] = made.mutual(made.good[each], required=required)
                await lab.start(each)
                await until(lab.whole)
        pairs = ((0, 1), (1, 2), (2, 0))
        await until(lambda: all(sealed(lab, one, other) for one, other in pairs))
        assert not any(node.refusals for node in lab.nodes.values())
        await lab.close()

    asyncio.run(run())


class Pretending(Mutual):
    """Greets as one that goes on with TLS, and does not."""

    async def streams(self, writer, session: Session, limit: int):  # type: ignore[no-untyped-def]
        writer.write(b"\x05\0\0\0plain")
        await asyncio.sleep(0.05)
        raise ConnectionResetError


def test_who_goes_on_in_plain_is_not_heard(made: Made) -> None:
    async def run() -> None:
        lab = await three(made, Pretending(CLUSTER, made.mutual(made.good[2])._told))
        await until(lambda: 2 in lab.nodes[0].refusals)
        assert not any(lab.nodes[at].connected()[2] for at in (0, 1))
        await lab.close()

    asyncio.run(run())
