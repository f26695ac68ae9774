"""Who may join: what a broker checks of another one's greeting, before a word of it is believed."""

from __future__ import annotations

from barco.cluster.gossip.facts import BrokerInfo
from barco.protocol.gossip import GOSSIP_OLDEST, GOSSIP_VERSION, Hello
from barco.protocol.span import newest_common, words


def refusal(
    mine: Hello, theirs: Hello, known: BrokerInfo | None, *, ring: int, address_fits: bool
) -> str:
    """Why the other broker is refused, in one line that says what to do; "" if it is not.

    ring: ordinals are below it: as many brokers as the ring has slices. known: what is known of a
    broker of that ordinal. address_fits: whether the other one speaks from the address that the
    configuration gives to that ordinal; one that it does not list, from one that is nobody's.
    """
    ours = GOSSIP_OLDEST, GOSSIP_VERSION
    spoken = theirs.protocol, theirs.newest or theirs.protocol
    if newest_common(ours, spoken) is None:
        return (
            f"wrong version: broker {theirs.ordinal} (barco {theirs.version}) speaks gossip"
            f" {words(spoken)}, broker {mine.ordinal} (barco {mine.version}) speaks {words(ours)}:"
            " run versions that fit one another"
        )
    if theirs.cluster_uuid != mine.cluster_uuid:
        return (
            f"wrong cluster: broker {theirs.ordinal} is of another cluster than broker"
            f" {mine.ordinal}: correct cluster.brokers, or format the data directory for this"
            " cluster"
        )
    if _shape(theirs) != _shape(mine):
        return (
            f"another shape: broker {theirs.ordinal} was formatted for {_shape(theirs)}, broker"
            f" {mine.ordinal} for {_shape(mine)}: these have to be the same everywhere"
        )
    if not 0 <= theirs.ordinal < ring:
        return (
            f"broker.ordinal = {theirs.ordinal}: a ring of {ring} slices has no room for it:"
            " correct it, or cluster.brokers"
        )
    if theirs.ordinal == mine.ordinal or not address_fits:
        return (
            f"duplicate ordinal: two brokers say that they are broker {theirs.ordinal}, or one"
            " speaks from an address that cluster.brokers gives to another: correct"
            " broker.ordinal or broker.bind of one of them"
        )
    return _wrong_disk(theirs, known)


def _wrong_disk(theirs: Hello, known: BrokerInfo | None) -> str:
    if known is None or known.disk_uuid in (theirs.disk_uuid, theirs.replaces):
        return ""
    return (
        f"another disk: broker {theirs.ordinal} is known with disk {known.disk_uuid} and comes with"
        f" {theirs.disk_uuid}: bring the old data directory back, or run barco replace"
    )


def _shape(hello: Hello) -> str:
    return (
        f"{hello.brokers} brokers, {hello.slices_per_range} slices a range, {hello.workers}"
        f" workers, format {hello.format}"
    )
