"""Who may join: what a broker checks of another one's greeting, before a word of it is believed."""

from __future__ import annotations

from barco.cluster.gossip.facts import BrokerInfo
from barco.protocol.gossip import GOSSIP_VERSION, Hello


def refusal(mine: Hello, theirs: Hello, known: BrokerInfo | None, *, address_fits: bool) -> str:
    """Why the other broker is refused, in one line that says what to do; "" if it is not.

    known: what is known of a broker of that ordinal. address_fits: whether the other one speaks
    from the address that the configuration gives to that ordinal.
    """
    if theirs.protocol != GOSSIP_VERSION:
        return (
            f"wrong version: broker {theirs.ordinal} (barco {theirs.version}) speaks gossip"
            f" {theirs.protocol}, broker {mine.ordinal} (barco {mine.version}) speaks"
            f" {GOSSIP_VERSION}: run versions that fit one another"
        )
    if theirs.cluster_uuid != mine.cluster_uuid:
        return (
            f"wrong cluster: broker {theirs.ordinal} is of another cluster than broker"
            f" {mine.ordinal}: correct cluster.brokers, or format the data directory for this"
            " cluster"
        )
    if (theirs.brokers, theirs.slices_per_range, theirs.workers) != (
        mine.brokers,
        mine.slices_per_range,
        mine.workers,
    ):
        return (
            f"another shape: broker {theirs.ordinal} has {_shape(theirs)}, broker {mine.ordinal}"
            f" {_shape(mine)}: these have to be the same everywhere"
        )
    if not 0 <= theirs.ordinal < mine.brokers:
        return (
            f"broker.ordinal = {theirs.ordinal} is not in a ring of {mine.brokers}: correct it, or"
            " cluster.brokers"
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
        f"{hello.brokers} brokers, {hello.slices_per_range} slices a range, {hello.workers} workers"
    )
