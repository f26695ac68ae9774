"""Brokers that are to be in the cluster as well."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.target import (
    Known,
    Target,
    TargetBroker,
    first_target,
    next_target,
)
from barco.errors import ConfigError, ConflictError, NotReadyError, RequestError
from barco.model.options import cluster_mark
from barco.supervisor.sources import wish
from barco.supervisor.sources.asking import Asker
from barco.supervisor.sources.wish import HeardCluster, Wisher, wished

CUT = Cut(3, 8)
UUID = "a" * 32
HOSTS = [f"127.0.0.{each + 1}" for each in range(12)]


def heard(target: Target | None = None, **hosts: str) -> HeardCluster:
    found = {int(name[1:]): host for name, host in hosts.items()}
    return HeardCluster(target=target or first_target(CUT, 2), hosts=found)


def test_new_ones_are_like_the_others_and_at_their_address() -> None:
    target = wished(heard(), HOSTS[:4])
    assert target is not None and target.version == 0
    assert target.brokers[:3] == first_target(CUT, 2).brokers
    assert target.brokers[3] == TargetBroker(ordinal=3, workers=2, host=HOSTS[3])


def test_whoever_says_less_or_the_same_changes_nothing() -> None:
    target = wished(heard(), HOSTS[:6])
    for count in range(1, 7):
        assert wished(heard(target), HOSTS[:count]) is None
    more = wished(heard(target), HOSTS[:12])
    assert more is not None and more.brokers[:6] == target.brokers and len(more.brokers) == 12


def test_a_gap_is_filled() -> None:
    """Of a half-grown ring."""
    brokers = (*first_target(CUT, 2).brokers, TargetBroker(ordinal=5, workers=1))
    target = wished(heard(Target(4, CUT, brokers)), HOSTS[:5])
    assert target is not None and [each.ordinal for each in target.brokers] == [0, 1, 2, 3, 4, 5]


def test_what_no_ring_has_is_refused() -> None:
    with pytest.raises(RequestError, match="12 that of brokers"):
        wished(heard(), HOSTS * 2)


def test_two_that_say_different_things() -> None:
    target = wished(heard(), HOSTS[:4])
    wrong = [*HOSTS[:3], "127.0.0.77", "127.0.0.5"]
    with pytest.raises(ConfigError, match=r"broker 3 at 127.0.0.77, and it was listed by another"):
        wished(heard(target), wrong)
    with pytest.raises(ConfigError, match=r"broker 3 at 127.0.0.4, and it is at 127.0.0.77"):
        wished(heard(target, b3="127.0.0.77"), HOSTS[:5])
    assert wished(heard(target, b3="127.0.0.77"), wrong) is not None  # It has come, and counts.
    assert wished(heard(target), [*HOSTS[:3], "", HOSTS[4]]) is not None  # Who knows none.


def test_addresses_are_compared_and_not_their_spelling() -> None:
    target = wished(heard(), [*HOSTS[:3], "0:0::1"])
    assert target is not None and target.brokers[3].host == "::1"
    assert wished(heard(target), [*HOSTS[:3], "::0:1"]) is None


def test_nobody_who_could_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wish, "ASK_SECONDS", 0.3)
    wisher = Wisher(Asker({}).ask, UUID, heard)
    with pytest.raises(NotReadyError, match="No process of this broker is ready"):
        asyncio.run(wisher.wish(HOSTS[:4]))
    assert "has them already" in asyncio.run(wisher.wish(HOSTS[:3]))  # Nobody is asked.


class Race:
    """A cluster whose target is kept by the real compare and set; gossip tells it a try later."""

    def __init__(self) -> None:
        self.kept = self.told = first_target(CUT, 2)
        self.refused = 0

    def wisher(self) -> Wisher:
        race = self

        async def ask(op: str, args: Mapping[str, Any], seconds: float) -> bytes:
            assert (op, args["cluster"], seconds) == ("target_change", cluster_mark(UUID), 30.0)
            race.told = race.kept
            brokers = [
                TargetBroker(ordinal=ordinal, workers=workers, host=host, disk_uuid=disk)
                for ordinal, workers, host, disk in args["brokers"]
            ]
            known = Known(cluster_uuid="c")
            try:
                race.kept = next_target(
                    race.kept, args["seen"], brokers, cluster_uuid="c", known=known
                )
            except ConflictError:
                race.refused += 1
                raise
            return race.kept.packed()

        return Wisher(ask, UUID, lambda: HeardCluster(target=race.told, hosts={}))


def test_who_comes_second_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """And asks for what the first one has not said, or for nothing."""
    monkeypatch.setattr(wish, "PAUSE_SECONDS", 0.01)
    race = Race()

    async def play() -> list[str]:
        return [await race.wisher().wish(HOSTS[:count]) for count in (4, 6, 4)]

    said = asyncio.run(play())
    expected = ["the target is version 1, of 4 brokers", "the target is version 2, of 6 brokers"]
    assert said[:2] == expected
    assert len(race.kept.brokers) == 6 and race.refused == 1


def test_a_conflict_that_stays_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of the last target are left, say."""
    monkeypatch.setattr(wish, "PAUSE_SECONDS", 0.0)
    tries = []

    async def refuse(op: str, args: Mapping[str, Any], seconds: float) -> bytes:
        tries.append(args)
        raise ConflictError("the last target is not reached, 3 steps are left")

    with pytest.raises(ConflictError, match="3 steps are left"):
        asyncio.run(Wisher(refuse, UUID, heard).wish(HOSTS[:4]))
    assert len(tries) == wish.TRIES
