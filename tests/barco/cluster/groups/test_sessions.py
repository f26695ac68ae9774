"""When a session is over, as each of some brokers sees it."""

import pytest
from msgspec.structs import replace
from sites import SESSION_S, Site, same, spread

from barco.cluster.gossip.facts import ConsumerInfo
from barco.cluster.groups.signs import told_after


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("ordinal", [0, 1])
@pytest.mark.parametrize("last", [step / 4 for step in range(21, 61, 3)])
def test_a_session_ends_when_it_is_over_by_what_was_heard_anywhere(
    last: float, ordinal: int, crashes: bool
) -> None:
    """Not earlier, though brokers tell of a consumer now and then only, and at most 1 s later: with
    a look each second and an exchange each quarter, whoever hears of it, and if that one crashes
    once it has told."""
    sites = [Site(0), Site(1)]
    given = {"consumerId": "c", "group": "g", "topics": ["t"], "start": "startFromLatest"}
    sites[0].request("register", 0.0, **given, sessionMs=5_000)
    spread(sites)
    for quarter in range(1, 120):
        now = quarter / 4
        if now <= last:
            sites[ordinal].request("touch", now, consumerIds=["c"])
        for site in sites:
            if quarter % 4 == site.ordinal:
                site.tick(now)
        spread(sites, now)
        if crashes and now == last + 3.0:
            del sites[ordinal]
        there = [bool(site.groups()) for site in sites]
        assert all(there) or now >= last + 5.0, f"ended at {now}"
        assert not any(there) or now < last + 6.5, f"alive at {now}"


def test_what_is_ended_elsewhere_and_was_heard_of_here_lives_on() -> None:
    sites = [Site(0), Site(1)]
    sites[0].register("c")
    spread(sites)
    sites[1].request("touch", SESSION_S / 2, consumerIds=["c"])
    spread(sites, SESSION_S / 2)
    sites[1].request("touch", SESSION_S / 2 + 1, consumerIds=["c"])
    assert sites[0].tick(1.5 * SESSION_S)
    spread(sites, 1.5 * SESSION_S)
    assert same(sites) and list(sites[0].groups()) == ["g"]
    now = 1.5 * SESSION_S + 1
    assert sites[1].tick(now), "and ends where it was heard of last"
    spread(sites, now)
    assert sites[0].groups() == sites[1].groups() == {}


def test_a_liar_ends_once_more_what_said_goodbye_before_it_was_told_of() -> None:
    """A sign of it was still to be told when it left: nobody is there to live on."""
    sites = [Site(0), Site(1)]
    sites[0].register("c")
    spread(sites)
    for now in (1.0, 1.5):
        sites[0].request("touch", now, consumerIds=["c"])
    sites[0].request("goodbye", 2.0, consumerId="c")
    gone = ConsumerInfo.of(sites[0].facts()[0])
    again = replace(gone, heard=told_after(gone.heard, 0.0))
    sites[0].hear([again.fact()], 2.1)
    sites[0].tick(2.1 + SESSION_S)
    assert sites[0].groups() == {}


@pytest.mark.parametrize("topics", [("t", "u"), ("u",)])
def test_a_liar_says_other_topics_of_a_consumer_that_is_known(topics: tuple[str, ...]) -> None:
    """Everybody takes it, and goes on: its next sign of life is told as it is known."""
    sites = [Site(0), Site(1)]
    sites[0].register("c")
    spread(sites)
    known = ConsumerInfo.of(sites[0].facts()[0])
    lie = replace(known, heard=told_after(known.heard, 0.0), topics=topics, ranks=())
    for site in sites:
        site.hear([lie.fact()], 1.0)
    sites[1].register("d")
    for site in sites:
        site.request("touch", 20.0, consumerIds=["c"])
        site.tick(20.0)
    spread(sites, 20.0)
    assert same(sites) and set(sites[0].groups()["g"]) == {"c", "d"}
